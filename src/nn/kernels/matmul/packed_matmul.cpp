#include "nn/kernels/matmul/packed_matmul.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <span>
#include <utility>
#include <vector>

#include "base/plain/error.h"
#include "nn/kernels/matmul/packed_kernels.h"
#include "nn/kernels/matmul/unpacked_gemm.h"

namespace evenkeel::kernels {
namespace {

constexpr int64_t kPackedNumbers = int64_t{1} << 22;  // of x, packed at once
constexpr int64_t kShareRows = 512;
constexpr int64_t kLine = 32;     // numbers of a line of cache, in 16 bits
constexpr int64_t kSums = 16384;  // of a streamed share: 64 KiB, so that 8 whole rows of the weight are read at once
constexpr int64_t kStreamRoom = kSums + 256;  // for sums of whole vectors

// Terms that a sum is made of: x [rows, depth], whichever way it lies; packed, [block][tile][step][row].
struct Terms {
  const PackedKernels& kernels;
  TileSource x;
  int64_t rows, depth;
  bool transposed;  // rows of the weight are columns of y

  int64_t tiles() const { return streamed() ? 1 : (rows + kernels.tile_rows - 1) / kernels.tile_rows; }
  int64_t first_row(int64_t tile) const {
    const int64_t whole = kernels.whole_rows;
    return std::min((tile * rows / tiles() + whole - 1) & -whole, rows);
  }
  int64_t height(int64_t tile) const { return first_row(tile + 1) - first_row(tile); }
  bool streamed() const { return rows <= kernels.streamed_rows; }
  // Whether all panels of a share are packed at once, which reads rows of the weight from end to end.
  bool packs_shares() const { return !transposed && !kernels.multiply_and_pack; }
  int64_t panels_of(int64_t columns) const { return (columns + kernels.panel_width - 1) / kernels.panel_width; }
  int64_t panel_numbers(int64_t columns) const {
    return (packs_shares() ? panels_of(columns) : 1) * kBlock * kernels.panel_width;
  }
  int64_t block() const { return kernels.block_terms(); }
  int64_t packed_at(int64_t k) const { return kernels.steps(k) * rows; }  // where a block begins
  StoredPart part(const StoredPart& w, int64_t k, int64_t terms, int64_t column, int64_t columns) const {
    return transposed ? w.part(column, k, columns, terms) : w.part(k, column, terms, columns);
  }
};

// Terms in float32 that follow those of a product.
struct PackedAddend {
  Terms terms;
  StoredPart w;
  const float* packed;
};

// One weight of a product, seen as columns of y: the rows of a weight that is transposed, else its columns.
struct Operand {
  StoredPart w;
  int64_t columns;
  const float* scales;  // [columns]
  Result y;
  std::span<const Addend> addends;
  std::vector<PackedAddend> packed_addends{};
};

// y (+)= x w or x w^T for each operand.
struct Product {
  Terms terms;
  std::vector<Operand> operands;
};

// Those of the terms whose x is packed.
struct Window {
  int64_t begin, end;
  const float* packed;
};

// Some columns of an operand for some tiles.
struct Share {
  const Operand* operand;
  int64_t column, columns, tile, end_tile;
};

// Calls f(i, next, thread) for every i below count, where `next` is what the same thread takes then, or count: threads
// take shares as they get free, so that one that is held up holds up no other.
template <typename F>
void for_each_share(int64_t count, int64_t threads, const F& f) {
  std::atomic<int64_t> taken{0};
  at::parallel_for(0, std::min(threads, count), 1, [&](int64_t thread, int64_t) {
    for (int64_t i = taken++; i < count;) {
      const int64_t next = std::min(taken++, count);
      f(i, next, thread);
      i = next;
    }
  });
}

void pack(const Terms& of, const Window& window, float* out, int64_t threads) {
  const int64_t tiles = of.tiles(), block = of.block();
  const int64_t blocks = (window.end - window.begin + block - 1) / block;
  const bool little = of.streamed() || of.rows * (window.end - window.begin) <= kWorthPacking;
  for_each_share(tiles * blocks, little ? 1 : threads, [&](int64_t i, int64_t, int64_t) {
    const int64_t tile = i % tiles, k = i / tiles * block, depth = std::min(block, window.end - window.begin - k);
    const int64_t row = of.first_row(tile), first = window.begin + k;
    TileSource x = of.x;
    x.x += row * x.row_stride + first * x.k_stride;
    if (x.scales) x.scales += first;
    of.kernels.pack_tile(x, of.height(tile), depth, out + of.packed_at(k) + row * of.kernels.steps(depth));
  });
}

// Where columns of y are columns of the weight, few of them mean short pieces of many pages: 512 bytes at least, and
// whole rows where reading them is most of the work. One thread's next block of 192 crowds less in its caches, where
// there are tiles enough to fetch it meanwhile and no shares to be dealt evenly.
int64_t columns_at_once(const Terms& terms, int64_t threads) {
  if (terms.transposed) return 128;
  if (terms.packs_shares()) return terms.rows <= 96 ? std::max<int64_t>(2048 / threads, 256) : 256;
  if (terms.streamed()) return threads == 1 ? kSums / terms.rows / kLine * kLine : 512;
  return threads == 1 && terms.tiles() > 1 ? 192 : 256;
}

// Columns of the result, and rows of it in so many bands, that a thread takes at once.
struct ShareSize {
  int64_t columns, bands;

  int64_t count(const Product& product) const {
    int64_t shares = 0;
    for (const auto& operand : product.operands) shares += (operand.columns + columns - 1) / columns * bands;
    return shares;
  }
};

// One for each thread at least, as far as there is enough of the result. Narrower ones first: another band packs the
// same weight once more.
ShareSize share_size(const Product& product, int64_t threads) {
  const auto& terms = product.terms;
  const int64_t width = terms.kernels.panel_width, tiles = terms.tiles();
  ShareSize size{columns_at_once(terms, threads), (terms.rows + kShareRows - 1) / kShareRows};
  while (size.count(product) < threads && size.columns > 2 * width)
    size.columns = std::max(size.columns / 2 / width, int64_t{2}) * width;
  while (size.count(product) < threads && 2 * size.bands <= tiles) size.bands *= 2;
  return size;
}

std::vector<Share> shares_of(const Product& product, int64_t threads) {
  const auto [most, bands] = share_size(product, threads);
  const int64_t tiles = product.terms.tiles();
  std::vector<Share> shares;
  for (const auto& operand : product.operands)
    for (int64_t band = 0; band < bands; ++band)
      for (int64_t column = 0; column < operand.columns; column += most)
        shares.push_back({&operand, column, std::min(most, operand.columns - column), band * tiles / bands,
                          (band + 1) * tiles / bands});
  return shares;
}

TileResult result_of(const Share& share, int64_t row, int64_t column, int64_t columns, bool add) {
  const auto& y = share.operand->y;
  const float* scales = share.operand->scales;
  TileResult result{.y = y.data + row * y.stride + column,
                    .stride = y.stride,
                    .columns = columns,
                    .scales = scales ? scales + column : nullptr};
  if (add) result.add_from_now_on();
  return result;
}

// One block of terms, of several that a share's sums are made of: the first begins with what was there or with nothing,
// the last puts the sums where they belong.
struct Block {
  int64_t k, depth;
  const float* x;
  bool first, last;
  bool scaled = true;  // by the scales of the operand
};

// A share's sums while its blocks are added, [panel][row][column of the panel]: rows of y are often a power of two
// apart, and would push each other out of every cache.
class ShareSums {
 public:
  ShareSums(const Product& product, const Share& share, bool add, float* room)
      : share_(share),
        first_row_(product.terms.first_row(share.tile)),
        rows_(product.terms.first_row(share.end_tile) - first_row_),
        width_(product.terms.kernels.panel_width),
        add_(add),
        room_(room) {}
  static int64_t numbers(const Terms& terms, const Share& share) {
    return terms.panels_of(share.columns) * terms.kernels.panel_width *
           (terms.first_row(share.end_tile) - terms.first_row(share.tile));
  }

  TileResult tile(int64_t row, int64_t column, int64_t columns, const Block& block) const {
    TileResult result = result_of(share_, row, column, columns, block.first && add_);
    float* sums = room_ + (column - share_.column) * rows_ + (row - first_row_) * width_;
    if (!block.first) {
      result.before = sums;
      result.before_stride = width_;
    }
    if (!block.last) {
      result.y = sums;
      result.stride = width_;
    }
    if (!block.scaled) result.scales = nullptr;
    return result;
  }

 private:
  const Share& share_;
  int64_t first_row_, rows_, width_;
  bool add_;
  float* room_;
};

void stream(const Product& product, const Window& window, const Share& share, float* sums) {
  const auto& [kernels, x, rows, depth, transposed] = product.terms;
  const auto w =
      product.terms.part(share.operand->w, window.begin, window.end - window.begin, share.column, share.columns);
  const auto y = result_of(share, 0, share.column, share.columns, window.begin > 0 || share.operand->y.add);
  kernels.stream(rows, window.packed, w, transposed, y, sums);
}

// A panel's columns of one block meet a share's tiles. Of x w, the first tile packs what it meets, or all panels are
// packed before.
void multiply_panel(const Terms& terms, const StoredPart& w, const Share& share, int64_t column, const Block& block,
                    float* panel, const ShareSums& sums, Ahead& ahead) {
  const auto& kernels = terms.kernels;
  const int64_t columns = std::min(kernels.panel_width, share.column + share.columns - column);
  const auto part = terms.part(w, block.k, block.depth, column, columns);
  const bool first_packs = !terms.transposed && kernels.multiply_and_pack && columns == kernels.panel_width &&
                           block.depth % kernels.terms == 0;
  if (!first_packs && !terms.packs_shares()) kernels.pack_panel(part, terms.transposed, panel);
  const int64_t steps = kernels.steps(block.depth);
  for (int64_t tile = share.tile, row = terms.first_row(tile), end; tile < share.end_tile; ++tile, row = end) {
    end = terms.first_row(tile + 1);
    const float* x = block.x + row * steps;
    const auto result = sums.tile(row, column, columns, block);
    if (first_packs && tile == share.tile)
      kernels.multiply_and_pack(end - row, x, part, panel, result, ahead);
    else
      kernels.multiply(end - row, steps, x, panel, result, ahead);
  }
}

void multiply_block(const Terms& terms, const StoredPart& w, const Share& share, const Block& block, float* panel,
                    const ShareSums& sums, Ahead& ahead) {
  if (terms.packs_shares())
    terms.kernels.pack_panel(terms.part(w, block.k, block.depth, share.column, share.columns), false, panel);
  for (int64_t column = 0; column < share.columns; column += terms.kernels.panel_width)
    multiply_panel(terms, w, share, share.column + column, block, panel + (terms.packs_shares() ? column * kBlock : 0),
                   sums, ahead);
}

void multiply_addend(const PackedAddend& addend, const Share& share, bool last, float* panel, const ShareSums& sums) {
  const auto& terms = addend.terms;
  Ahead none;
  for (int64_t k = 0; k < terms.depth; k += terms.block()) {
    const Block block{.k = k,
                      .depth = std::min(terms.block(), terms.depth - k),
                      .x = addend.packed + terms.packed_at(k),
                      .first = false,
                      .last = last && k + terms.block() >= terms.depth,
                      .scaled = false};
    multiply_block(terms, addend.w, share, block, panel, sums, none);
  }
}

// While a block is multiplied, the weight's next one comes into the cache.
void multiply(const Product& product, const Window& window, const Share& share, const Share* next, float* room) {
  const auto& terms = product.terms;
  const int64_t block = terms.block();
  const auto block_of = [&](const Share& of, int64_t k) {
    return terms.part(of.operand->w, k, std::min(block, window.end - k), of.column, of.columns);
  };
  std::span<const PackedAddend> addends;
  if (window.end == terms.depth) addends = share.operand->packed_addends;
  const ShareSums sums(product, share, window.begin > 0 || share.operand->y.add,
                       room + terms.panel_numbers(share.columns));
  for (int64_t k = window.begin; k < window.end; k += block) {
    Ahead ahead;
    if (k + block < window.end)
      ahead = Ahead(block_of(share, k + block));
    else if (next)
      ahead = Ahead(block_of(*next, window.begin));
    ahead.spread_over(terms.panels_of(share.columns) * (share.end_tile - share.tile) * kBlock / 16);
    const Block now{.k = k,
                    .depth = std::min(block, window.end - k),
                    .x = window.packed + terms.packed_at(k - window.begin),
                    .first = k == window.begin,
                    .last = k + block >= window.end && addends.empty()};
    multiply_block(terms, share.operand->w, share, now, room, sums, ahead);
  }
  for (const auto& addend : addends) multiply_addend(addend, share, &addend == &addends.back(), room, sums);
}

// Of a thread, in numbers.
int64_t room_for(const Terms& terms, const std::vector<Share>& shares) {
  if (terms.streamed()) return kStreamRoom;
  int64_t numbers = 0;
  for (const auto& share : shares)
    numbers = std::max(numbers, terms.panel_numbers(share.columns) + ShareSums::numbers(terms, share));
  return numbers;
}

int64_t threads_for(const Product& product) {
  int64_t columns = 0;
  for (const auto& operand : product.operands) columns += operand.columns;
  const bool small = product.terms.rows * product.terms.depth * columns < kWorthThreads;
  return small || at::in_parallel_region() ? 1 : at::get_num_threads();
}

void check(const Product& product) {
  const auto& terms = product.terms;
  for (const auto& operand : product.operands)
    for (const auto& [x, w] : operand.addends) {
      const int64_t columns = terms.transposed ? w.out : w.in;
      EK_CHECK(x.rows == terms.rows && columns == operand.columns && !w.scales, kShape, "a product: an addend has ",
               x.rows, " rows and ", columns, " columns, expected ", terms.rows, " and ", operand.columns,
               ", not of int8");
    }
}

void pack_addends(Product& product, PackedScratch& scratch, int64_t threads) {
  const auto& terms = product.terms;
  int64_t numbers = 0;
  for (auto& operand : product.operands)
    for (const auto& [x, w] : operand.addends) {
      operand.packed_addends.push_back({{packed_kernels(scratch.instructions, Arithmetic::kSingles),
                                         {.x = x.data, .row_stride = x.stride, .k_stride = 1, .scale = x.scale},
                                         terms.rows,
                                         terms.transposed ? w.in : w.out,
                                         terms.transposed},
                                        all_of(w),
                                        nullptr});
      numbers += terms.rows * operand.packed_addends.back().terms.depth;
    }
  float* packed = scratch.addends.at_least(numbers);
  for (auto& operand : product.operands)
    for (auto& addend : operand.packed_addends) {
      pack(addend.terms, {0, addend.terms.depth, packed}, packed, threads);
      addend.packed = packed;
      packed += addend.terms.rows * addend.terms.depth;
    }
}

void multiply_all(const Product& product, PackedScratch& scratch, int64_t threads) {
  const auto& terms = product.terms;
  const int64_t block = terms.block(), most_terms = std::max(block, kPackedNumbers / terms.rows / kBlock * block);
  const auto shares = shares_of(product, threads);
  const auto count = static_cast<int64_t>(shares.size());
  // The last tile of a block may be read as a whole one.
  float* x = scratch.x.at_least(terms.packed_at(std::min(most_terms, terms.depth)) + terms.kernels.whole_rows * kBlock);
  const int64_t room_numbers = room_for(terms, shares);
  float* rooms = scratch.w.at_least(threads * room_numbers);
  for (int64_t k = 0; k < terms.depth; k += most_terms) {
    const Window window{k, std::min(k + most_terms, terms.depth), x};
    pack(terms, window, x, threads);
    for_each_share(count, threads, [&](int64_t i, int64_t next, int64_t thread) {
      const InUse in_use(terms.kernels);
      const auto& share = shares[static_cast<size_t>(i)];
      float* room = rooms + thread * room_numbers;
      terms.streamed() ? stream(product, window, share, room)
                       : multiply(product, window, share, next < count ? &share + (next - i) : nullptr, room);
    });
  }
}

void clear(const Product& product) {
  for (const auto& operand : product.operands)
    for (int64_t row = 0; row < product.terms.rows && !operand.y.add; ++row)
      std::fill_n(operand.y.data + row * operand.y.stride, operand.columns, 0.0f);
}

// Addends go with a share's tiles, where those of float32 have the same heights and widths.
bool takes_addends(const Terms& terms, const PackedScratch& scratch) {
  const auto& single = packed_kernels(scratch.instructions, Arithmetic::kSingles);
  return terms.depth > 0 && !terms.streamed() && terms.kernels.tile_rows == single.tile_rows &&
         terms.kernels.panel_width == single.panel_width;
}

void run(Product product, PackedScratch& scratch) {
  const auto& terms = product.terms;
  if (terms.rows == 0) return;
  const int64_t threads = threads_for(product);
  const bool together = takes_addends(terms, scratch);
  if (together) pack_addends(product, scratch, threads);
  terms.depth > 0 ? multiply_all(product, scratch, threads) : clear(product);
  if (together) return;
  for (const auto& operand : product.operands)
    for (const auto& [x, w] : operand.addends) {
      const SideBySide after{w, {operand.y.data, operand.y.stride, true}};
      terms.transposed ? times_transposed(x, std::span(&after, 1), scratch) : times(x, after, scratch);
    }
}

}  // namespace

StoredPart all_of(const StoredMatrix& w) { return {w.data, w.dtype, w.stride, w.out, w.in}; }

void times_transposed(const Activations& x, std::span<const SideBySide> products, PackedScratch& scratch) {
  if (products.empty()) return;
  Product product{.terms = {packed_kernels(scratch.instructions, x.arithmetic),
                            {.x = x.data, .row_stride = x.stride, .k_stride = 1, .scale = x.scale},
                            x.rows,
                            products.front().w.in,
                            true},
                  .operands = {}};
  for (const auto& [w, y, addends] : products) {
    EK_CHECK(w.in == product.terms.depth, kShape, "a product: weights side by side have ", product.terms.depth, " and ",
             w.in, " columns, expected as many each");
    product.operands.push_back({all_of(w), w.out, w.scales, y, addends});
  }
  check(product);
  if (!lying_times_transposed(x, products, scratch)) run(std::move(product), scratch);
}

void times_transposed(const Activations& x, const StoredMatrix& w, const Result& y, PackedScratch& scratch) {
  const SideBySide one{w, y};
  times_transposed(x, std::span(&one, 1), scratch);
}

void times(const Activations& x, const SideBySide& product, PackedScratch& scratch) {
  const auto& [w, y, addends] = product;
  Product packed{.terms = {packed_kernels(scratch.instructions, x.arithmetic),
                           {.x = x.data, .row_stride = x.stride, .k_stride = 1, .scale = x.scale, .scales = w.scales},
                           x.rows,
                           w.out,
                           false},
                 .operands = {{all_of(w), w.in, nullptr, y, addends}}};
  check(packed);
  if (!lying_times(x, product, scratch)) run(std::move(packed), scratch);
}

void times(const Activations& x, const StoredMatrix& w, const Result& y, PackedScratch& scratch) {
  times(x, SideBySide{w, y}, scratch);
}

void transposed_times(const Activations& x, int64_t width, const StoredMatrix& w, const Result& y,
                      PackedScratch& scratch) {
  EK_CHECK(x.rows == w.out, kShape, "a product: the operands have ", x.rows, " and ", w.out, " rows, expected as many");
  run({.terms = {packed_kernels(scratch.instructions, Arithmetic::kSingles),
                 {.x = x.data, .row_stride = 1, .k_stride = x.stride, .scale = x.scale, .scales = w.scales},
                 width,
                 w.out,
                 false},
       .operands = {{all_of(w), w.in, nullptr, y, {}}}},
      scratch);
}

}  // namespace evenkeel::kernels
