#include "nn/kernels/matmul/unpacked_gemm.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "base/system/parallel.h"
#include "nn/kernels/matmul/gemm_kernels.h"

namespace evenkeel::nn::kernels {
namespace {

constexpr int64_t kMaxLanes = 16;               // of all instruction sets
constexpr int64_t kMaxNarrowColumns = 64;       // columns of y up to which a weight counts as narrow
constexpr RowRange kUnpackedFloatRows{3, 128};  // rows of x for which a float32 weight is read in place
constexpr int64_t kMaxPanelTerms = 16384;       // a panel of so many terms takes 2 MiB
// With at least so many columns of y, stream() is not used even for few rows.
constexpr int64_t kMinStreamedColumns = 256;

// The operand that is read in place.
struct UnpackedOperand {
  const GemmKernels& kernels;
  SubMatrix rows;
  float scale;
};

// A product or one of its epilogues. Layout of `packed`: [block][step][width of the group].
struct Summand {
  UnpackedOperand unpacked;
  const float* packed;
};

// Columns of the packed operand that are multiplied at once, and their part of the result: y [rows, columns], or
// [columns, rows] with transposed_result.
struct PanelGroup {
  std::vector<Summand> summands;  // the product, then its epilogues
  int64_t columns, width;         // used columns; panel width, at most unpacked_vectors vectors
  Result y;
};

struct UnpackedGemm {
  const GemmKernels& kernels;
  int64_t rows;            // of the operand that is read in place
  bool transposed_result;  // true: the weight is read in place; false: the activations are
  std::vector<PanelGroup> groups;
};

// ---- multiplying

// Returns a prefetcher for up to `rows` rows from `row` on, of `all` rows.
Prefetcher prefetch_next_rows(const Summand& summand, int64_t row, int64_t rows, int64_t all) {
  const auto& unpacked = summand.unpacked.rows;
  return Prefetcher(unpacked.part(row, 0, std::min(rows, all - row), unpacked.columns));
}

// Multiplies `height` rows with a panel, block by block.
void multiply_unpacked(const Summand& summand, const PanelGroup& group, int64_t row, int64_t height, float* sums,
                       bool add, Prefetcher& prefetcher) {
  const auto& [kernels, rows, scale] = summand.unpacked;
  for (int64_t k = 0, terms_now; k < rows.columns; k += terms_now) {
    terms_now = std::min(kernels.unpacked_terms, rows.columns - k);
    const UnpackedRows block{rows.part(row, k, height, terms_now), scale};
    const PanelView panel{summand.packed + kernels.steps(k) * group.width, group.width, group.columns};
    kernels.multiply_unpacked(block, panel, sums, add || k > 0, prefetcher);
  }
}

// Rows that are multiplied before their sums are stored.
int64_t rows_per_pass(const GemmKernels& kernels) { return std::max(kernels.lanes, kernels.unpacked_rows); }

// Computes one group for at most rows_per_pass() rows. `prefetcher` belongs to the main product.
void multiply_group(const UnpackedGemm& product, const PanelGroup& group, int64_t row, int64_t rows,
                    Prefetcher& prefetcher) {
  alignas(64) float sums[kMaxUnpackedRows * kMaxUnpackedVectors * kMaxLanes];
  for (const auto& summand : group.summands) {
    const bool is_main = &summand == &group.summands.front();
    Prefetcher epilogue_prefetcher;
    if (!is_main && &group == &product.groups.front())
      epilogue_prefetcher = prefetch_next_rows(summand, row + rows, rows, product.rows);
    const int64_t most = summand.unpacked.kernels.unpacked_rows;
    for (int64_t r = 0; r < rows; r += most)
      multiply_unpacked(summand, group, row + r, std::min(most, rows - r), sums + r * group.width, !is_main,
                        is_main ? prefetcher : epilogue_prefetcher);
  }
  const auto& y = group.y;
  const auto& kernels = product.kernels;
  for (int64_t r = 0; r < rows; r += kernels.lanes) {
    float* first = y.data + (product.transposed_result ? row + r : (row + r) * y.stride);
    const TileResult to{.y = first, .stride = y.stride, .columns = group.columns};
    (product.transposed_result ? kernels.store_transposed : kernels.store_rows)(
        sums + r * group.width, std::min(kernels.lanes, rows - r), group.width, to);
  }
}

// Returns how many rows a thread takes at once: at least four pieces per thread if there are enough rows. Pieces of a
// weight, which is read from memory, have at least two passes.
int64_t rows_per_piece(const UnpackedGemm& product) {
  const int64_t fewest = rows_per_pass(product.kernels) * (product.transposed_result ? 2 : 1);
  const int64_t fair = product.rows / (4 * at::get_num_threads()) / fewest * fewest;
  return std::clamp(fair, fewest, product.kernels.unpacked_piece);
}

void run_unpacked(const UnpackedGemm& product, bool parallel) {
  const int64_t piece = parallel ? rows_per_piece(product) : product.rows, most = rows_per_pass(product.kernels);
  const auto groups = static_cast<int64_t>(product.groups.size());
  for_each_piece((product.rows + piece - 1) / piece, [&](int64_t i) {
    const AmxTileScope tile_scope(product.kernels);
    const int64_t end = std::min((i + 1) * piece, product.rows);
    for (int64_t row = i * piece, rows; row < end; row += rows) {
      rows = std::min(most, end - row);
      const auto& summand = product.groups.front().summands.front();
      Prefetcher prefetcher = prefetch_next_rows(summand, row + rows, rows, product.rows);
      prefetcher.spread_over(groups * summand.unpacked.rows.columns / 32);
      for (const auto& group : product.groups) multiply_group(product, group, row, rows, prefetcher);
    }
  });
}

// ---- packing

int64_t whole_blocks(const GemmKernels& kernels, int64_t depth) {
  return (kernels.steps(depth) + kBlockSteps - 1) / kBlockSteps * kBlockSteps;
}

// Rows of activations that are packed as columns of a panel.
struct LhsRows {
  const GemmKernels& kernels;
  LhsSource x;
  int64_t depth;

  int64_t elements(int64_t vectors) const { return kernels.steps(depth) * vectors * kernels.lanes; }
  void pack(int64_t first, int64_t rows, int64_t vectors, float* out) const {
    const int64_t width = vectors * kernels.lanes;
    if (rows < width) std::fill_n(out, elements(vectors), 0.0f);
    for (int64_t row = 0; row < rows; row += kernels.lanes) {
      LhsSource from = x;
      from.x += (first + row) * x.row_stride;
      kernels.pack_lhs_lanes(from, std::min(kernels.lanes, rows - row), depth, out + row, width);
    }
  }
};

LhsRows rows_of(const GemmKernels& kernels, const Activations& x, int64_t depth) {
  return {kernels, {.x = x.data, .row_stride = x.stride, .k_stride = 1, .scale = x.scale}, depth};
}

// Packs part of a weight as one panel of two vectors.
void pack_columns(const GemmKernels& kernels, const SubMatrix& w, bool transposed, float* out) {
  const int64_t depth = transposed ? w.columns : w.rows;
  for (int64_t k = 0; k < depth; k += kBlockSteps) {
    const int64_t terms = std::min(kBlockSteps, depth - k);
    const auto block = transposed ? w.part(0, k, w.rows, terms) : w.part(k, 0, terms, w.columns);
    kernels.pack_panel(block, transposed, out + k * kernels.panel_width);
  }
}

bool is_worth_threads(int64_t rows, int64_t depth, int64_t columns) {
  return rows * depth * columns >= kMinParallelMacs && !at::in_parallel_region();
}

// Computes a group with narrow weights: x is read in place, the weights are packed.
void multiply_narrow_weights(const Activations& x, std::span<const GroupedOperand> group, bool transposed,
                             GemmScratch& scratch) {
  const auto& kernels = gemm_kernels(scratch.instructions, Arithmetic::kFp32);
  const auto columns_of = [&](const StoredMatrix& w) { return transposed ? w.out : w.in; };
  const int64_t depth = transposed ? group.front().w.in : group.front().w.out;
  const int64_t width = kernels.panel_width, elements = whole_blocks(kernels, depth) * width;
  int64_t all_columns = 0, panels = 0;
  for (const auto& product : group) {
    all_columns += columns_of(product.w);
    panels += (columns_of(product.w) + width - 1) / width;
  }
  float* packed = scratch.w.at_least(panels * elements);
  UnpackedGemm unpacked{kernels, x.rows, false, {}};
  for (const auto& [w, y, epilogues] : group)
    for (int64_t column = 0; column < columns_of(w); column += width, packed += elements) {
      const int64_t count = std::min(width, columns_of(w) - column);
      pack_columns(
          kernels,
          transposed ? as_sub_matrix(w).part(column, 0, count, depth) : as_sub_matrix(w).part(0, column, depth, count),
          transposed, packed);
      const Summand summand{{kernels, {x.data, c10::kFloat, x.stride, x.rows, depth}, x.scale}, packed};
      unpacked.groups.push_back({{summand}, count, width, {y.data + column, y.stride}});
    }
  run_unpacked(unpacked, is_worth_threads(x.rows, depth, all_columns));
}

// Some rows of x. Groups are as equal in size as whole vectors allow.
struct RowGroup {
  int64_t first, rows, vectors;
};
std::vector<RowGroup> row_groups(const GemmKernels& kernels, int64_t rows) {
  const int64_t vectors = (rows + kernels.lanes - 1) / kernels.lanes;
  const int64_t count = (vectors + kernels.unpacked_vectors - 1) / kernels.unpacked_vectors;
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

// Packs x and returns the panel of each group. `out` is advanced past them.
std::vector<const float*> packed_rows(const LhsRows& rows, const std::vector<RowGroup>& groups, float*& out) {
  std::vector<float*> panels;
  for (const auto& group : groups) {
    panels.push_back(out);
    out += rows.elements(group.vectors);
  }
  const auto pack = [&](int64_t g) {
    const auto& [first, count, vectors] = groups[static_cast<size_t>(g)];
    rows.pack(first, count, vectors, panels[static_cast<size_t>(g)]);
  };
  const auto count = static_cast<int64_t>(groups.size());
  if (rows.elements(vectors_of(groups)) * rows.kernels.terms_per_step > kMinParallelPacking)
    for_each_piece(count, pack);
  else
    for (int64_t g = 0; g < count; ++g) pack(g);
  return {panels.begin(), panels.end()};
}

// Computes a group with weights that are read in place: x is packed.
void multiply_row_band(const Activations& x, std::span<const GroupedOperand> group, GemmScratch& scratch) {
  const auto &kernels = gemm_kernels(scratch.instructions, x.arithmetic),
             &single = gemm_kernels(scratch.instructions, Arithmetic::kFp32);
  const auto groups = row_groups(kernels, x.rows);
  const auto rows = rows_of(kernels, x, group.front().w.in);
  float* out = scratch.x.at_least(rows.elements(vectors_of(groups)));
  const auto packed = packed_rows(rows, groups, out);
  for (const auto& [w, y, epilogues] : group) {
    UnpackedGemm unpacked{kernels, w.out, true, {}};
    for (size_t g = 0; g < groups.size(); ++g)
      unpacked.groups.push_back({{{{kernels, as_sub_matrix(w), 1}, packed[g]}},
                                 groups[g].rows,
                                 groups[g].vectors * kernels.lanes,
                                 {y.data + groups[g].first * y.stride, y.stride}});
    int64_t ranks = 0;
    for (const auto& epilogue : epilogues) ranks += epilogue.w.in;
    out = scratch.epilogues.at_least(ranks * vectors_of(groups) * single.lanes);
    for (const auto& [xa, b] : epilogues) {
      const auto inner = packed_rows(rows_of(single, xa, b.in), groups, out);
      for (size_t g = 0; g < groups.size(); ++g)
        unpacked.groups[g].summands.push_back({{single, as_sub_matrix(b), 1}, inner[g]});
    }
    run_unpacked(unpacked, is_worth_threads(w.out, rows.depth, x.rows));
  }
}

void multiply_unpacked_weights(const Activations& x, std::span<const GroupedOperand> group, GemmScratch& scratch) {
  for (int64_t row = 0; row < x.rows; row += kBandRows) {
    const int64_t rows = std::min(kBandRows, x.rows - row);
    const auto band_of = [&](Activations all) {
      all.data += row * all.stride;
      all.rows = rows;
      return all;
    };
    std::vector<GroupedOperand> bands;
    for (const auto& [w, y, epilogues] : group) {
      auto& band = bands.emplace_back(GroupedOperand{w, {y.data + row * y.stride, y.stride}});
      for (const auto& [xa, b] : epilogues) band.epilogues.push_back({band_of(xa), b});
    }
    multiply_row_band(band_of(x), bands, scratch);
  }
}

// ---- selection

// Returns whether reading the weight in place is faster than packing it, for `rows` rows of x, and possible: rows must
// consist of whole, aligned 32-bit words.
bool can_skip_packing(const GemmKernels& kernels, const StoredMatrix& w, int64_t rows) {
  if (w.dtype == c10::kFloat) return kernels.terms_per_step == 1 && kUnpackedFloatRows.contains(rows);
  return w.dtype == c10::kBFloat16 && kernels.unpacked_bf16_rows.contains(rows) &&
         w.in % (2 * kernels.step_multiple) == 0 && w.stride % 2 == 0 &&
         reinterpret_cast<uintptr_t>(w.data) % sizeof(float) == 0;
}

// Returns whether multiply_narrow_weights() applies.
bool weights_are_narrow(const Activations& x, std::span<const GroupedOperand> group, bool transposed,
                        Isa instructions) {
  const auto fits = [&](const GroupedOperand& product) {
    const auto& [w, y, epilogues] = product;
    const int64_t depth = transposed ? w.in : w.out, columns = transposed ? w.out : w.in;
    return !y.add && !w.scales && epilogues.empty() && columns <= kMaxNarrowColumns && depth > 0 &&
           depth <= kMaxPanelTerms;
  };
  return x.arithmetic == Arithmetic::kFp32 &&
         x.rows > gemm_kernels(instructions, Arithmetic::kFp32).max_streamed_rows &&
         std::all_of(group.begin(), group.end(), fits);
}

// Returns whether multiply_unpacked_weights() applies.
bool weights_can_skip_packing(const Activations& x, std::span<const GroupedOperand> group, Isa instructions) {
  const auto &kernels = gemm_kernels(instructions, x.arithmetic),
             &single = gemm_kernels(instructions, Arithmetic::kFp32);
  const auto fits = [&](const GroupedOperand& product) {
    const auto& [w, y, epilogues] = product;
    return !y.add && w.in > 0 && (x.rows > kernels.max_streamed_rows || w.out >= kMinStreamedColumns) &&
           can_skip_packing(kernels, w, x.rows) &&
           std::all_of(epilogues.begin(), epilogues.end(), [&](const LowRankEpilogue& epilogue) {
             return x.arithmetic == Arithmetic::kBf16Tiles ? epilogue.w.dtype == c10::kFloat
                                                           : can_skip_packing(single, epilogue.w, x.rows);
           });
  };
  return kernels.lanes == single.lanes && std::all_of(group.begin(), group.end(), fits);
}

}  // namespace

bool gemm_nt_unpacked(const Activations& x, std::span<const GroupedOperand> group, GemmScratch& scratch) {
  if (weights_are_narrow(x, group, true, scratch.instructions))
    multiply_narrow_weights(x, group, true, scratch);
  else if (weights_can_skip_packing(x, group, scratch.instructions))
    multiply_unpacked_weights(x, group, scratch);
  else
    return false;
  return true;
}

bool gemm_nn_unpacked(const Activations& x, const GroupedOperand& product, GemmScratch& scratch) {
  const auto one = std::span(&product, 1);
  if (!weights_are_narrow(x, one, false, scratch.instructions)) return false;
  multiply_narrow_weights(x, one, false, scratch);
  return true;
}

}  // namespace evenkeel::nn::kernels
