#include "nn/kernels/packed_product.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "nn/kernels/packed_kernels.h"

namespace evenkeel::kernels {
namespace {

constexpr int64_t kPackedNumbers = int64_t{1} << 22;  // of x, packed at once
constexpr int64_t kShareRows = 512;
constexpr int64_t kLine = 32;                        // numbers of a line of cache, in 16 bits
constexpr int64_t kWorthThreads = int64_t{1} << 21;  // multiply-adds
constexpr int64_t kSums = 4096;                      // of a streamed share: 16 KiB, half of a first-level cache
constexpr int64_t kStreamRoom = kSums + 256;         // for sums of whole vectors

// One weight of a product, seen as columns of y: the rows of a weight that is transposed, else its columns.
struct Operand {
  StoredPart w;
  int64_t columns;
  const float* scales;  // [columns]
  Result y;
};

// y (+)= x w or x w^T for each operand; x is [rows, depth], whichever way it lies; packed, [block][tile][step][row].
struct Product {
  const PackedKernels& kernels;
  TileSource x;
  int64_t rows, depth;
  bool transposed;
  std::vector<Operand> operands;

  int64_t tiles() const { return streamed() ? 1 : (rows + kernels.tile_rows - 1) / kernels.tile_rows; }
  int64_t first_row(int64_t tile) const { return tile * rows / tiles(); }
  int64_t height(int64_t tile) const { return first_row(tile + 1) - first_row(tile); }
  bool streamed() const { return rows <= kernels.streamed_rows; }
  // Of panels that are packed together.
  int64_t panel_numbers(int64_t columns) const {
    const int64_t width = kernels.panel_width;
    return kBlock * (transposed ? width : (columns + width - 1) / width * width);
  }
  int64_t block() const { return kernels.block_terms(); }
  int64_t packed_at(int64_t k) const { return kernels.steps(k) * rows; }  // where a block begins
  StoredPart part(const Operand& operand, int64_t k, int64_t terms, int64_t column, int64_t columns) const {
    return transposed ? operand.w.part(column, k, columns, terms) : operand.w.part(k, column, terms, columns);
  }
};

// Terms whose x is packed.
struct Terms {
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

void pack(const Product& product, const Terms& terms, float* out, int64_t threads) {
  const int64_t tiles = product.tiles(), block = product.block();
  const int64_t blocks = (terms.end - terms.begin + block - 1) / block;
  for_each_share(tiles * blocks, product.streamed() ? 1 : threads, [&](int64_t i, int64_t, int64_t) {
    const int64_t tile = i % tiles, k = i / tiles * block, depth = std::min(block, terms.end - terms.begin - k);
    const int64_t row = product.first_row(tile), first = terms.begin + k;
    TileSource x = product.x;
    x.x += row * x.row_stride + first * x.k_stride;
    if (x.scales) x.scales += first;
    product.kernels.pack_tile(x, product.height(tile), depth,
                              out + product.packed_at(k) + row * product.kernels.steps(depth));
  });
}

// Where columns of y are columns of the weight, few of them mean short pieces of many pages: 512 bytes at least.
int64_t columns_at_once(const Product& product, int64_t threads) {
  if (product.transposed) return 128;
  if (!product.streamed()) return 256;
  return threads == 1 ? kSums / product.rows / kLine * kLine : 512;
}

std::vector<Share> shares_of(const Product& product, int64_t threads) {
  const int64_t tiles = product.tiles();
  const int64_t most = columns_at_once(product, threads);
  const int64_t bands = (product.rows + kShareRows - 1) / kShareRows;
  std::vector<Share> shares;
  for (const auto& operand : product.operands)
    for (int64_t band = 0; band < bands; ++band)
      for (int64_t column = 0; column < operand.columns; column += most)
        shares.push_back({&operand, column, std::min(most, operand.columns - column), band * tiles / bands,
                          (band + 1) * tiles / bands});
  return shares;
}

TileResult result_of(const Share& share, int64_t row, int64_t column, int64_t columns, bool add) {
  const auto& [w, all_columns, scales, y] = *share.operand;
  return {.y = y.data + row * y.stride + column,
          .stride = y.stride,
          .columns = columns,
          .scales = scales ? scales + column : nullptr,
          .add = add || y.add};
}

// A share's sums while its blocks are added, [panel][row][column of the panel]: rows of y are often a power of two
// apart, and would push each other out of every cache. One block alone goes to y itself.
class ShareSums {
 public:
  ShareSums(const Product& product, const Share& share, float* room)
      : share_(share),
        first_row_(product.first_row(share.tile)),
        rows_(product.first_row(share.end_tile) - first_row_),
        width_(product.kernels.panel_width),
        room_(product.depth > product.block() ? room : nullptr) {}
  static int64_t numbers(const Product& product, const Share& share) {
    const int64_t width = product.kernels.panel_width, panels = (share.columns + width - 1) / width;
    return panels * width * (product.first_row(share.end_tile) - product.first_row(share.tile));
  }

  void load() const {
    each_row([](float* y, float* sums, size_t bytes) { std::memcpy(sums, y, bytes); });
  }
  void store() const {
    each_row([](float* y, float* sums, size_t bytes) { std::memcpy(y, sums, bytes); });
  }
  TileResult tile(int64_t row, int64_t column, int64_t columns, bool add) const {
    TileResult result = result_of(share_, row, column, columns, add);
    if (!room_) return result;
    result.y = at(row, column);
    result.stride = width_;
    result.add = add;
    return result;
  }

 private:
  float* at(int64_t row, int64_t column) const {
    return room_ + (column - share_.column) * rows_ + (row - first_row_) * width_;
  }
  template <typename F>
  void each_row(const F& f) const {
    if (!room_) return;
    const auto& y = share_.operand->y;
    const int64_t end = share_.column + share_.columns;
    for (int64_t column = share_.column; column < end; column += width_)
      for (int64_t row = first_row_; row < first_row_ + rows_; ++row)
        f(y.data + row * y.stride + column, at(row, column),
          sizeof(float) * static_cast<size_t>(std::min(width_, end - column)));
  }

  const Share& share_;
  int64_t first_row_, rows_, width_;
  float* room_;
};

void stream(const Product& product, const Terms& terms, const Share& share, float* sums) {
  const auto w = product.part(*share.operand, terms.begin, terms.end - terms.begin, share.column, share.columns);
  const auto y = result_of(share, 0, share.column, share.columns, terms.begin > 0);
  product.kernels.stream(product.rows, terms.packed, w, product.transposed, y, sums);
}

// One block of terms.
struct Block {
  int64_t k, depth;
  const float* x;
  bool add;  // to the sums so far
};

void multiply_block(const Product& product, const Share& share, const Block& block, float* panels,
                    const ShareSums& sums, Ahead& ahead) {
  const auto& kernels = product.kernels;
  const int64_t end = share.column + share.columns, steps = kernels.steps(block.depth), width = kernels.panel_width;
  const auto pack = [&](int64_t column, int64_t columns) {
    kernels.pack_panels(product.part(*share.operand, block.k, block.depth, column, columns), product.transposed,
                        panels);
  };
  if (!product.transposed) pack(share.column, share.columns);
  for (int64_t column = share.column; column < end; column += width) {
    const int64_t columns = std::min(width, end - column);
    if (product.transposed) pack(column, columns);
    const float* panel = product.transposed ? panels : panels + (column - share.column) * kBlock;
    for (int64_t tile = share.tile; tile < share.end_tile; ++tile) {
      const int64_t row = product.first_row(tile);
      kernels.multiply(product.height(tile), steps, block.x + row * steps, panel,
                       sums.tile(row, column, columns, block.add), ahead);
    }
  }
}

// While a block is multiplied, the weight's next one comes into the cache.
void multiply(const Product& product, const Terms& terms, const Share& share, const Share* next, float* room) {
  const int64_t block = product.block();
  const auto block_of = [&](const Share& of, int64_t k) {
    return product.part(*of.operand, k, std::min(block, terms.end - k), of.column, of.columns);
  };
  const ShareSums sums(product, share, room + product.panel_numbers(share.columns));
  const bool add = terms.begin > 0 || share.operand->y.add;
  if (add) sums.load();
  for (int64_t k = terms.begin; k < terms.end; k += block) {
    Ahead ahead;
    if (k + block < terms.end)
      ahead = Ahead(block_of(share, k + block));
    else if (next)
      ahead = Ahead(block_of(*next, terms.begin));
    const Block now{k, std::min(block, terms.end - k), terms.packed + product.packed_at(k - terms.begin),
                    add || k > terms.begin};
    multiply_block(product, share, now, room, sums, ahead);
  }
  sums.store();
}

// Of a thread, in numbers.
int64_t room_for(const Product& product, const std::vector<Share>& shares) {
  if (product.streamed()) return kStreamRoom;
  int64_t most = 0;
  for (const auto& share : shares)
    most = std::max(most, product.panel_numbers(share.columns) + ShareSums::numbers(product, share));
  return most;
}

int64_t threads_for(const Product& product) {
  int64_t columns = 0;
  for (const auto& operand : product.operands) columns += operand.columns;
  const bool small = product.rows * product.depth * columns < kWorthThreads;
  return small || at::in_parallel_region() ? 1 : at::get_num_threads();
}

void clear(const Product& product) {
  for (const auto& [w, columns, scales, y] : product.operands)
    for (int64_t row = 0; row < product.rows && !y.add; ++row) std::fill_n(y.data + row * y.stride, columns, 0.0f);
}

void run(const Product& product, PackedScratch& scratch) {
  if (product.rows == 0) return;
  if (product.depth == 0) return clear(product);
  const int64_t threads = threads_for(product);
  const int64_t block = product.block();
  const int64_t most_terms = std::max(block, kPackedNumbers / product.rows / kBlock * block);
  const auto shares = shares_of(product, threads);
  const auto count = static_cast<int64_t>(shares.size());
  float* x = scratch.x.at_least(product.packed_at(std::min(most_terms, product.depth)));
  const int64_t room_numbers = room_for(product, shares);
  float* rooms = scratch.w.at_least(threads * room_numbers);
  for (int64_t k = 0; k < product.depth; k += most_terms) {
    const Terms terms{k, std::min(k + most_terms, product.depth), x};
    pack(product, terms, x, threads);
    for_each_share(count, threads, [&](int64_t i, int64_t next, int64_t thread) {
      const auto& share = shares[static_cast<size_t>(i)];
      float* room = rooms + thread * room_numbers;
      product.streamed() ? stream(product, terms, share, room)
                         : multiply(product, terms, share, next < count ? &share + (next - i) : nullptr, room);
    });
  }
}

StoredPart all_of(const StoredMatrix& w) { return {w.data, w.dtype, w.stride, w.out, w.in}; }

}  // namespace

void times_transposed(const Activations& x, std::span<const SideBySide> products, PackedScratch& scratch) {
  if (products.empty()) return;
  Product product{.kernels = packed_kernels(scratch.instructions, x.pairs),
                  .x = {.x = x.data, .row_stride = x.stride, .k_stride = 1, .scale = x.scale},
                  .rows = x.rows,
                  .depth = products.front().w.in,
                  .transposed = true,
                  .operands = {}};
  for (const auto& [w, y] : products) {
    EK_CHECK(w.in == product.depth, kShape, "a product: weights side by side have ", product.depth, " and ", w.in,
             " columns, expected as many each");
    product.operands.push_back({all_of(w), w.out, w.scales, y});
  }
  run(product, scratch);
}

void times_transposed(const Activations& x, const StoredMatrix& w, const Result& y, PackedScratch& scratch) {
  const SideBySide one{w, y};
  times_transposed(x, std::span(&one, 1), scratch);
}

void times(const Activations& x, const StoredMatrix& w, const Result& y, PackedScratch& scratch) {
  run({.kernels = packed_kernels(scratch.instructions, x.pairs),
       .x = {.x = x.data, .row_stride = x.stride, .k_stride = 1, .scale = x.scale, .scales = w.scales},
       .rows = x.rows,
       .depth = w.out,
       .transposed = false,
       .operands = {{all_of(w), w.in, nullptr, y}}},
      scratch);
}

void transposed_times(const Activations& x, int64_t width, const StoredMatrix& w, const Result& y,
                      PackedScratch& scratch) {
  EK_CHECK(x.rows == w.out, kShape, "a product: the operands have ", x.rows, " and ", w.out, " rows, expected as many");
  run({.kernels = packed_kernels(scratch.instructions, false),
       .x = {.x = x.data, .row_stride = 1, .k_stride = x.stride, .scale = x.scale, .scales = w.scales},
       .rows = width,
       .depth = w.out,
       .transposed = false,
       .operands = {{all_of(w), w.in, nullptr, y}}},
      scratch);
}

}  // namespace evenkeel::kernels
