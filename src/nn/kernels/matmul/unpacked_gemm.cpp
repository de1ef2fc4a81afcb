#include "nn/kernels/matmul/unpacked_gemm.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "base/system/parallel.h"
#include "nn/kernels/matmul/packed_kernels.h"

namespace evenkeel::kernels {
namespace {

constexpr int64_t kMostLanes = 16;
constexpr int64_t kFewColumns = 64;
constexpr RowRange kLyingFloat{3, 128};
constexpr int64_t kMostPanelTerms = 16384;  // a panel of so many terms is 2 MiB
constexpr int64_t kWorthPanels = 256;       // rows of a weight that pay for whole vectors of few rows of x

// What lies.
struct Lying {
  const PackedKernels& kernels;
  StoredPart rows;
  float scale;
};

// What is packed, for one product or one addend of it: [block][step][width of the group].
struct LyingTerms {
  Lying lying;
  const float* packed;
};

// Columns of what is packed that are multiplied at once, and where the result goes: y [rows, columns], or
// [columns, rows] when it goes across.
struct Group {
  std::vector<LyingTerms> summands;  // that of the product, then those of addends
  int64_t columns, width;            // asked for, and in the panel: at most lying_vectors
  Result y;
};

struct LyingProduct {
  const PackedKernels& kernels;
  int64_t rows;  // that lie
  bool across;
  std::vector<Group> groups;
};

// ---- multiplying

// What comes into the cache while rows before these are multiplied.
Ahead rows_after(const LyingTerms& terms, int64_t row, int64_t rows, int64_t all) {
  const auto& lying = terms.lying.rows;
  return Ahead(lying.part(row, 0, std::min(rows, all - row), lying.columns));
}

void multiply_lying(const LyingTerms& terms, const Group& group, int64_t row, int64_t height, float* sums, bool add,
                    Ahead& ahead) {
  const auto& [kernels, rows, scale] = terms.lying;
  for (int64_t k = 0, terms_now; k < rows.columns; k += terms_now) {
    terms_now = std::min(kernels.lying_terms, rows.columns - k);
    const LyingRows block{rows.part(row, k, height, terms_now), scale};
    const LyingPanel panel{terms.packed + kernels.steps(k) * group.width, group.width, group.columns};
    kernels.multiply_lying(block, panel, sums, add || k > 0, ahead);
  }
}

int64_t rows_at_once(const PackedKernels& kernels) { return std::max(kernels.lanes, kernels.lying_rows); }

// At most rows_at_once() of what lies; `ahead` is of the product's own terms.
void multiply_rows(const LyingProduct& product, const Group& group, int64_t row, int64_t rows, Ahead& ahead) {
  alignas(64) float sums[kMostLyingRows * kMostLyingVectors * kMostLanes];
  for (const auto& terms : group.summands) {
    const bool own = &terms == &group.summands.front();
    Ahead addends_ahead;
    if (!own && &group == &product.groups.front()) addends_ahead = rows_after(terms, row + rows, rows, product.rows);
    const int64_t most = terms.lying.kernels.lying_rows;
    for (int64_t r = 0; r < rows; r += most)
      multiply_lying(terms, group, row + r, std::min(most, rows - r), sums + r * group.width, !own,
                     own ? ahead : addends_ahead);
  }
  const auto& y = group.y;
  const auto& kernels = product.kernels;
  for (int64_t r = 0; r < rows; r += kernels.lanes) {
    float* first = y.data + (product.across ? row + r : (row + r) * y.stride);
    const TileResult to{.y = first, .stride = y.stride, .columns = group.columns};
    (product.across ? kernels.put_across : kernels.put_lying)(sums + r * group.width, std::min(kernels.lanes, rows - r),
                                                              group.width, to);
  }
}

// Of what lies, for a thread at once: four for each at least, as far as there are rows; of a weight, which comes from
// memory, twice what is multiplied at once.
int64_t piece_rows(const LyingProduct& product) {
  const int64_t fewest = rows_at_once(product.kernels) * (product.across ? 2 : 1);
  const int64_t fair = product.rows / (4 * at::get_num_threads()) / fewest * fewest;
  return std::clamp(fair, fewest, product.kernels.lying_piece);
}

void run_lying(const LyingProduct& product, bool worth_threads) {
  const int64_t piece = worth_threads ? piece_rows(product) : product.rows, most = rows_at_once(product.kernels);
  const auto groups = static_cast<int64_t>(product.groups.size());
  for_each_piece((product.rows + piece - 1) / piece, [&](int64_t i) {
    const InUse in_use(product.kernels);
    const int64_t end = std::min((i + 1) * piece, product.rows);
    for (int64_t row = i * piece, rows; row < end; row += rows) {
      rows = std::min(most, end - row);
      const auto& terms = product.groups.front().summands.front();
      Ahead ahead = rows_after(terms, row + rows, rows, product.rows);
      ahead.spread_over(groups * terms.lying.rows.columns / 32);
      for (const auto& group : product.groups) multiply_rows(product, group, row, rows, ahead);
    }
  });
}

// ---- packing

int64_t whole_blocks(const PackedKernels& kernels, int64_t depth) {
  return (kernels.steps(depth) + kBlock - 1) / kBlock * kBlock;
}

// Terms of rows of activations, which become columns of a panel.
struct Rows {
  const PackedKernels& kernels;
  TileSource x;
  int64_t depth;

  int64_t numbers(int64_t vectors) const { return kernels.steps(depth) * vectors * kernels.lanes; }
  void pack(int64_t first, int64_t rows, int64_t vectors, float* out) const {
    const int64_t width = vectors * kernels.lanes;
    if (rows < width) std::fill_n(out, numbers(vectors), 0.0f);
    for (int64_t row = 0; row < rows; row += kernels.lanes) {
      TileSource from = x;
      from.x += (first + row) * x.row_stride;
      kernels.pack_lanes(from, std::min(kernels.lanes, rows - row), depth, out + row, width);
    }
  }
};

Rows rows_of(const PackedKernels& kernels, const Activations& x, int64_t depth) {
  return {kernels, {.x = x.data, .row_stride = x.stride, .k_stride = 1, .scale = x.scale}, depth};
}

// A piece of one weight, its terms packed; two vectors whatever its columns.
void pack_columns(const PackedKernels& kernels, const StoredPart& w, bool transposed, float* out) {
  const int64_t depth = transposed ? w.columns : w.rows;
  for (int64_t k = 0; k < depth; k += kBlock) {
    const int64_t terms = std::min(kBlock, depth - k);
    const auto block = transposed ? w.part(0, k, w.rows, terms) : w.part(k, 0, terms, w.columns);
    kernels.pack_panel(block, transposed, out + k * kernels.panel_width);
  }
}

bool worth_threads(int64_t rows, int64_t depth, int64_t columns) {
  return rows * depth * columns >= kWorthThreads && !at::in_parallel_region();
}

// x lies, the weights are packed.
void with_few_columns(const Activations& x, std::span<const SideBySide> products, bool transposed,
                      PackedScratch& scratch) {
  const auto& kernels = packed_kernels(scratch.instructions, Arithmetic::kSingles);
  const auto columns_of = [&](const StoredMatrix& w) { return transposed ? w.out : w.in; };
  const int64_t depth = transposed ? products.front().w.in : products.front().w.out;
  const int64_t width = kernels.panel_width, numbers = whole_blocks(kernels, depth) * width;
  int64_t all_columns = 0, panels = 0;
  for (const auto& product : products) {
    all_columns += columns_of(product.w);
    panels += (columns_of(product.w) + width - 1) / width;
  }
  float* packed = scratch.w.at_least(panels * numbers);
  LyingProduct lying{kernels, x.rows, false, {}};
  for (const auto& [w, y, addends] : products)
    for (int64_t column = 0; column < columns_of(w); column += width, packed += numbers) {
      const int64_t count = std::min(width, columns_of(w) - column);
      pack_columns(kernels,
                   transposed ? all_of(w).part(column, 0, count, depth) : all_of(w).part(0, column, depth, count),
                   transposed, packed);
      const LyingTerms terms{{kernels, {x.data, c10::kFloat, x.stride, x.rows, depth}, x.scale}, packed};
      lying.groups.push_back({{terms}, count, width, {y.data + column, y.stride}});
    }
  run_lying(lying, worth_threads(x.rows, depth, all_columns));
}

// Some rows of x, as equal in number as whole vectors allow.
struct RowGroup {
  int64_t first, rows, vectors;
};
std::vector<RowGroup> row_groups(const PackedKernels& kernels, int64_t rows) {
  const int64_t vectors = (rows + kernels.lanes - 1) / kernels.lanes;
  const int64_t count = (vectors + kernels.lying_vectors - 1) / kernels.lying_vectors;
  std::vector<RowGroup> groups;
  for (int64_t g = 0; g < count; ++g) {
    const int64_t begin = g * vectors / count, end = (g + 1) * vectors / count, first = begin * kernels.lanes;
    groups.push_back({first, std::min(end * kernels.lanes, rows) - first, end - begin});
  }
  return groups;
}

int64_t vectors_of(const std::vector<RowGroup>& groups) {
  int64_t vectors = 0;
  for (const auto& group : groups) vectors += group.vectors;
  return vectors;
}

// The panels of each group; `out` is moved behind them.
std::vector<const float*> packed_rows(const Rows& rows, const std::vector<RowGroup>& groups, float*& out) {
  std::vector<float*> places;
  for (const auto& group : groups) {
    places.push_back(out);
    out += rows.numbers(group.vectors);
  }
  const auto pack = [&](int64_t g) {
    const auto& [first, count, vectors] = groups[static_cast<size_t>(g)];
    rows.pack(first, count, vectors, places[static_cast<size_t>(g)]);
  };
  const auto count = static_cast<int64_t>(groups.size());
  if (rows.numbers(vectors_of(groups)) * rows.kernels.terms > kWorthPacking)
    for_each_piece(count, pack);
  else
    for (int64_t g = 0; g < count; ++g) pack(g);
  return {places.begin(), places.end()};
}

// Each weight lies, x is packed.
void with_packed_band(const Activations& x, std::span<const SideBySide> products, PackedScratch& scratch) {
  const auto &kernels = packed_kernels(scratch.instructions, x.arithmetic),
             &single = packed_kernels(scratch.instructions, Arithmetic::kSingles);
  const auto groups = row_groups(kernels, x.rows);
  const auto rows = rows_of(kernels, x, products.front().w.in);
  float* room = scratch.x.at_least(rows.numbers(vectors_of(groups)));
  const auto packed = packed_rows(rows, groups, room);
  for (const auto& [w, y, addends] : products) {
    LyingProduct lying{kernels, w.out, true, {}};
    for (size_t g = 0; g < groups.size(); ++g)
      lying.groups.push_back({{{{kernels, all_of(w), 1}, packed[g]}},
                              groups[g].rows,
                              groups[g].vectors * kernels.lanes,
                              {y.data + groups[g].first * y.stride, y.stride}});
    int64_t ranks = 0;
    for (const auto& addend : addends) ranks += addend.w.in;
    room = scratch.addends.at_least(ranks * vectors_of(groups) * single.lanes);
    for (const auto& [xa, b] : addends) {
      const auto inner = packed_rows(rows_of(single, xa, b.in), groups, room);
      for (size_t g = 0; g < groups.size(); ++g) lying.groups[g].summands.push_back({{single, all_of(b), 1}, inner[g]});
    }
    run_lying(lying, worth_threads(w.out, rows.depth, x.rows));
  }
}

// Rows of x that are packed at once: of 2048 terms in bfloat16, 1 MiB that stays in a cache while the weights go by.
constexpr int64_t kBandRows = 256;

void with_lying_weights(const Activations& x, std::span<const SideBySide> products, PackedScratch& scratch) {
  for (int64_t row = 0; row < x.rows; row += kBandRows) {
    const int64_t rows = std::min(kBandRows, x.rows - row);
    const auto band_of = [&](Activations all) {
      all.data += row * all.stride;
      all.rows = rows;
      return all;
    };
    std::vector<SideBySide> bands;
    for (const auto& [w, y, addends] : products) {
      auto& band = bands.emplace_back(SideBySide{w, {y.data + row * y.stride, y.stride}});
      for (const auto& [xa, b] : addends) band.addends.push_back({band_of(xa), b});
    }
    with_packed_band(band_of(x), bands, scratch);
  }
}

// ---- what lies well

// For so many rows of x.
bool lies_well(const PackedKernels& kernels, const StoredMatrix& w, int64_t rows) {
  if (w.dtype == c10::kFloat) return kernels.terms == 1 && kLyingFloat.holds(rows);
  return w.dtype == c10::kBFloat16 && kernels.lying_bfloat16.holds(rows) && w.in % (2 * kernels.whole_steps) == 0 &&
         w.stride % 2 == 0 && reinterpret_cast<uintptr_t>(w.data) % sizeof(float) == 0;
}

bool few_columns(const Activations& x, std::span<const SideBySide> products, bool transposed, Isa instructions) {
  const auto fits = [&](const SideBySide& product) {
    const auto& [w, y, addends] = product;
    const int64_t depth = transposed ? w.in : w.out, columns = transposed ? w.out : w.in;
    return !y.add && !w.scales && addends.empty() && columns <= kFewColumns && depth > 0 && depth <= kMostPanelTerms;
  };
  return x.arithmetic == Arithmetic::kSingles &&
         x.rows > packed_kernels(instructions, Arithmetic::kSingles).streamed_rows &&
         std::all_of(products.begin(), products.end(), fits);
}

bool weights_lie(const Activations& x, std::span<const SideBySide> products, Isa instructions) {
  const auto &kernels = packed_kernels(instructions, x.arithmetic),
             &single = packed_kernels(instructions, Arithmetic::kSingles);
  const auto fits = [&](const SideBySide& product) {
    const auto& [w, y, addends] = product;
    return !y.add && w.in > 0 && (x.rows > kernels.streamed_rows || w.out >= kWorthPanels) &&
           lies_well(kernels, w, x.rows) && std::all_of(addends.begin(), addends.end(), [&](const Addend& a) {
             return x.arithmetic == Arithmetic::kTiles ? a.w.dtype == c10::kFloat : lies_well(single, a.w, x.rows);
           });
  };
  return kernels.lanes == single.lanes && std::all_of(products.begin(), products.end(), fits);
}

}  // namespace

bool lying_times_transposed(const Activations& x, std::span<const SideBySide> products, PackedScratch& scratch) {
  if (few_columns(x, products, true, scratch.instructions))
    with_few_columns(x, products, true, scratch);
  else if (weights_lie(x, products, scratch.instructions))
    with_lying_weights(x, products, scratch);
  else
    return false;
  return true;
}

bool lying_times(const Activations& x, const SideBySide& product, PackedScratch& scratch) {
  const auto one = std::span(&product, 1);
  if (!few_columns(x, one, false, scratch.instructions)) return false;
  with_few_columns(x, one, false, scratch);
  return true;
}

}  // namespace evenkeel::kernels
