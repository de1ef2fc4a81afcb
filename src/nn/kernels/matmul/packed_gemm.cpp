#include "nn/kernels/matmul/gemm.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <span>
#include <utility>
#include <vector>

#include "base/plain/error.h"
#include "nn/kernels/matmul/gemm_kernels.h"
#include "nn/kernels/matmul/unpacked_gemm.h"

namespace evenkeel::nn::kernels {
namespace {

constexpr int64_t kMaxWorkTileRows = 512;
constexpr int64_t kCacheLineElements = 32;                 // 16-bit elements of a cache line
constexpr int64_t kStreamedSums = 16384;                   // elements of the sums of a streamed work tile: 64 KiB
constexpr int64_t kStreamWorkspace = kStreamedSums + 256;  // plus padding to whole vectors

// The left operand of a GEMM, x [rows, depth], and how it is divided. Packed layout: [block][tile][step][row].
struct PackedLhs {
  const GemmKernels& kernels;
  LhsSource x;
  int64_t rows, depth;
  bool transposed;  // true: the GEMM is NT, rows of the weight are columns of y

  int64_t tiles() const { return streamed() ? 1 : (rows + kernels.tile_rows - 1) / kernels.tile_rows; }
  int64_t first_row(int64_t tile) const {
    const int64_t whole = kernels.row_multiple;
    return std::min((tile * rows / tiles() + whole - 1) & -whole, rows);
  }
  int64_t height(int64_t tile) const { return first_row(tile + 1) - first_row(tile); }
  bool streamed() const { return rows <= kernels.max_streamed_rows; }
  // Returns whether all panels of a work tile are packed at once. Then rows of the weight are read from end to end.
  bool packs_all_panels() const { return !transposed && !kernels.multiply_and_pack; }
  int64_t panels_of(int64_t columns) const { return (columns + kernels.panel_width - 1) / kernels.panel_width; }
  int64_t panel_elements(int64_t columns) const {
    return (packs_all_panels() ? panels_of(columns) : 1) * kBlockSteps * kernels.panel_width;
  }
  int64_t block() const { return kernels.block_terms(); }
  int64_t packed_offset(int64_t k) const { return kernels.steps(k) * rows; }  // offset of the block at term k
  SubMatrix part(const SubMatrix& w, int64_t k, int64_t terms, int64_t column, int64_t columns) const {
    return transposed ? w.part(column, k, columns, terms) : w.part(k, column, terms, columns);
  }
};

// An epilogue, packed for the main product's tiles.
struct PackedEpilogue {
  PackedLhs lhs;
  SubMatrix w;
  const float* packed;
};

// One weight of a group. Columns of y are rows of the weight for NT, columns for NN and TN.
struct RhsOperand {
  SubMatrix w;
  int64_t columns;
  const float* scales;  // [columns]
  Result y;
  std::span<const LowRankEpilogue> epilogues;
  std::vector<PackedEpilogue> packed_epilogues{};
};

// A whole product: y (+)= x w or x w^T for each weight.
struct GroupedGemm {
  PackedLhs lhs;
  std::vector<RhsOperand> operands;
};

// The range of the summation index for which x is packed.
struct KRange {
  int64_t begin, end;
  const float* packed;
};

// The part of the result that one thread computes at once: some columns of one weight for some tiles of x.
struct WorkTile {
  const RhsOperand* operand;
  int64_t column, columns, tile, end_tile;
};

// Calls f(i, next, thread) for every i in [0, count). Each thread takes the next index when it is free, so a slow
// thread does not delay the others. `next` is the index that the same thread will take afterwards, or count.
template <typename F>
void for_each_work_tile(int64_t count, int64_t threads, const F& f) {
  std::atomic<int64_t> claimed{0};
  at::parallel_for(0, std::min(threads, count), 1, [&](int64_t thread, int64_t) {
    for (int64_t i = claimed++; i < count;) {
      const int64_t next = std::min(claimed++, count);
      f(i, next, thread);
      i = next;
    }
  });
}

// Packs x for a range of terms.
void pack(const PackedLhs& of, const KRange& range, float* out, int64_t threads) {
  const int64_t tiles = of.tiles(), block = of.block();
  const int64_t blocks = (range.end - range.begin + block - 1) / block;
  const bool little = of.streamed() || of.rows * (range.end - range.begin) <= kMinParallelPacking;
  for_each_work_tile(tiles * blocks, little ? 1 : threads, [&](int64_t i, int64_t, int64_t) {
    const int64_t tile = i % tiles, k = i / tiles * block, depth = std::min(block, range.end - range.begin - k);
    const int64_t row = of.first_row(tile), first = range.begin + k;
    LhsSource x = of.x;
    x.x += row * x.row_stride + first * x.k_stride;
    if (x.scales) x.scales += first;
    of.kernels.pack_lhs_tile(x, of.height(tile), depth, out + of.packed_offset(k) + row * of.kernels.steps(depth));
  });
}

// Returns the number of columns of a work tile before it is divided among threads. If columns of y are columns of the
// weight, a thread reads at least 512 bytes of a row, and whole rows if reading dominates. A single thread with several
// tiles uses 192 columns, so that the next block of the weight fits into its caches while it is prefetched.
int64_t preferred_columns(const PackedLhs& lhs, int64_t threads) {
  if (lhs.transposed) return 128;
  if (lhs.packs_all_panels()) return lhs.rows <= 96 ? std::max<int64_t>(2048 / threads, 256) : 256;
  if (lhs.streamed()) return threads == 1 ? kStreamedSums / lhs.rows / kCacheLineElements * kCacheLineElements : 512;
  return threads == 1 && lhs.tiles() > 1 ? 192 : 256;
}

// The size of work tiles: a number of columns, and the number of bands into which the rows are divided.
struct WorkTileSize {
  int64_t columns, bands;

  int64_t count(const GroupedGemm& gemm) const {
    int64_t work_tiles = 0;
    for (const auto& operand : gemm.operands) work_tiles += (operand.columns + columns - 1) / columns * bands;
    return work_tiles;
  }
};

// Divides the result so that each thread gets at least one work tile, if the result is large enough. Columns are
// divided first, because every band packs the weight again.
WorkTileSize work_tile_size(const GroupedGemm& gemm, int64_t threads) {
  const auto& lhs = gemm.lhs;
  const int64_t width = lhs.kernels.panel_width, tiles = lhs.tiles();
  WorkTileSize size{preferred_columns(lhs, threads), (lhs.rows + kMaxWorkTileRows - 1) / kMaxWorkTileRows};
  while (size.count(gemm) < threads && size.columns > 2 * width)
    size.columns = std::max(size.columns / 2 / width, int64_t{2}) * width;
  while (size.count(gemm) < threads && 2 * size.bands <= tiles) size.bands *= 2;
  return size;
}

std::vector<WorkTile> work_tiles_of(const GroupedGemm& gemm, int64_t threads) {
  const auto [most, bands] = work_tile_size(gemm, threads);
  const int64_t tiles = gemm.lhs.tiles();
  std::vector<WorkTile> work_tiles;
  for (const auto& operand : gemm.operands)
    for (int64_t band = 0; band < bands; ++band)
      for (int64_t column = 0; column < operand.columns; column += most)
        work_tiles.push_back({&operand, column, std::min(most, operand.columns - column), band * tiles / bands,
                              (band + 1) * tiles / bands});
  return work_tiles;
}

// Returns the part of y at (row, column).
TileResult result_of(const WorkTile& work, int64_t row, int64_t column, int64_t columns, bool add) {
  const auto& y = work.operand->y;
  const float* scales = work.operand->scales;
  TileResult result{.y = y.data + row * y.stride + column,
                    .stride = y.stride,
                    .columns = columns,
                    .scales = scales ? scales + column : nullptr};
  if (add) result.accumulate();
  return result;
}

// One block of the summation index. The first block starts from y or from 0; the last one writes to y.
struct KBlock {
  int64_t k, depth;
  const float* x;
  bool first, last;
  bool scaled = true;  // multiplied by the scales of the weight
};

// The sums of a work tile between blocks, [panel][row][column of the panel]. They are not kept in y, because rows of y
// are often a power of two apart and would evict each other from the caches.
class PartialSums {
 public:
  PartialSums(const GroupedGemm& gemm, const WorkTile& work, bool add, float* workspace)
      : work_(work),
        first_row_(gemm.lhs.first_row(work.tile)),
        rows_(gemm.lhs.first_row(work.end_tile) - first_row_),
        width_(gemm.lhs.kernels.panel_width),
        add_(add),
        workspace_(workspace) {}
  static int64_t elements(const PackedLhs& lhs, const WorkTile& work) {
    return lhs.panels_of(work.columns) * lhs.kernels.panel_width *
           (lhs.first_row(work.end_tile) - lhs.first_row(work.tile));
  }

  // Returns where the sums of a tile and panel are read from and written to.
  TileResult tile(int64_t row, int64_t column, int64_t columns, const KBlock& block) const {
    TileResult result = result_of(work_, row, column, columns, block.first && add_);
    float* sums = workspace_ + (column - work_.column) * rows_ + (row - first_row_) * width_;
    if (!block.first) {
      result.initial = sums;
      result.initial_stride = width_;
    }
    if (!block.last) {
      result.y = sums;
      result.stride = width_;
    }
    if (!block.scaled) result.scales = nullptr;
    return result;
  }

 private:
  const WorkTile& work_;
  int64_t first_row_, rows_, width_;
  bool add_;
  float* workspace_;
};

// Computes a work tile of few rows without packing the weight.
void stream(const GroupedGemm& gemm, const KRange& range, const WorkTile& work, float* sums) {
  const auto& [kernels, x, rows, depth, transposed] = gemm.lhs;
  const auto w = gemm.lhs.part(work.operand->w, range.begin, range.end - range.begin, work.column, work.columns);
  const auto y = result_of(work, 0, work.column, work.columns, range.begin > 0 || work.operand->y.add);
  kernels.stream(rows, range.packed, w, transposed, y, sums);
}

// Multiplies all tiles of a work tile with one panel, for one block. For x w the first tile packs the panel while it
// multiplies, or all panels were packed before.
void multiply_panel(const PackedLhs& lhs, const SubMatrix& w, const WorkTile& work, int64_t column, const KBlock& block,
                    float* panel, const PartialSums& sums, Prefetcher& prefetcher) {
  const auto& kernels = lhs.kernels;
  const int64_t columns = std::min(kernels.panel_width, work.column + work.columns - column);
  const auto part = lhs.part(w, block.k, block.depth, column, columns);
  const bool first_packs = !lhs.transposed && kernels.multiply_and_pack && columns == kernels.panel_width &&
                           block.depth % kernels.terms_per_step == 0;
  if (!first_packs && !lhs.packs_all_panels()) kernels.pack_panel(part, lhs.transposed, panel);
  const int64_t steps = kernels.steps(block.depth);
  for (int64_t tile = work.tile, row = lhs.first_row(tile), end; tile < work.end_tile; ++tile, row = end) {
    end = lhs.first_row(tile + 1);
    const float* x = block.x + row * steps;
    const auto result = sums.tile(row, column, columns, block);
    if (first_packs && tile == work.tile)
      kernels.multiply_and_pack(end - row, x, part, panel, result, prefetcher);
    else
      kernels.multiply(end - row, steps, x, panel, result, prefetcher);
  }
}

// Multiplies a work tile for one block.
void multiply_block(const PackedLhs& lhs, const SubMatrix& w, const WorkTile& work, const KBlock& block, float* panel,
                    const PartialSums& sums, Prefetcher& prefetcher) {
  if (lhs.packs_all_panels())
    lhs.kernels.pack_panel(lhs.part(w, block.k, block.depth, work.column, work.columns), false, panel);
  for (int64_t column = 0; column < work.columns; column += lhs.kernels.panel_width)
    multiply_panel(lhs, w, work, work.column + column, block,
                   panel + (lhs.packs_all_panels() ? column * kBlockSteps : 0), sums, prefetcher);
}

// Adds an epilogue to the sums of a work tile.
void add_epilogue(const PackedEpilogue& epilogue, const WorkTile& work, bool last, float* panel,
                  const PartialSums& sums) {
  const auto& lhs = epilogue.lhs;
  Prefetcher none;
  for (int64_t k = 0; k < lhs.depth; k += lhs.block()) {
    const KBlock block{.k = k,
                       .depth = std::min(lhs.block(), lhs.depth - k),
                       .x = epilogue.packed + lhs.packed_offset(k),
                       .first = false,
                       .last = last && k + lhs.block() >= lhs.depth,
                       .scaled = false};
    multiply_block(lhs, epilogue.w, work, block, panel, sums, none);
  }
}

// Computes a work tile. The next block of the weight is prefetched meanwhile; after the last block it is the first
// block of `next`, if not null.
void multiply(const GroupedGemm& gemm, const KRange& range, const WorkTile& work, const WorkTile* next,
              float* workspace) {
  const auto& lhs = gemm.lhs;
  const int64_t block = lhs.block();
  const auto block_of = [&](const WorkTile& of, int64_t k) {
    return lhs.part(of.operand->w, k, std::min(block, range.end - k), of.column, of.columns);
  };
  std::span<const PackedEpilogue> epilogues;
  if (range.end == lhs.depth) epilogues = work.operand->packed_epilogues;
  const PartialSums sums(gemm, work, range.begin > 0 || work.operand->y.add,
                         workspace + lhs.panel_elements(work.columns));
  for (int64_t k = range.begin; k < range.end; k += block) {
    Prefetcher prefetcher;
    if (k + block < range.end)
      prefetcher = Prefetcher(block_of(work, k + block));
    else if (next)
      prefetcher = Prefetcher(block_of(*next, range.begin));
    prefetcher.spread_over(lhs.panels_of(work.columns) * (work.end_tile - work.tile) * kBlockSteps / 16);
    const KBlock now{.k = k,
                     .depth = std::min(block, range.end - k),
                     .x = range.packed + lhs.packed_offset(k - range.begin),
                     .first = k == range.begin,
                     .last = k + block >= range.end && epilogues.empty()};
    multiply_block(lhs, work.operand->w, work, now, workspace, sums, prefetcher);
  }
  for (const auto& epilogue : epilogues) add_epilogue(epilogue, work, &epilogue == &epilogues.back(), workspace, sums);
}

// Returns the number of elements that one thread needs.
int64_t workspace_elements(const PackedLhs& lhs, const std::vector<WorkTile>& work_tiles) {
  if (lhs.streamed()) return kStreamWorkspace;
  int64_t elements = 0;
  for (const auto& work : work_tiles)
    elements = std::max(elements, lhs.panel_elements(work.columns) + PartialSums::elements(lhs, work));
  return elements;
}

int64_t threads_for(const GroupedGemm& gemm) {
  int64_t columns = 0;
  for (const auto& operand : gemm.operands) columns += operand.columns;
  const bool small = gemm.lhs.rows * gemm.lhs.depth * columns < kMinParallelMacs;
  return small || at::in_parallel_region() ? 1 : at::get_num_threads();
}

void check(const GroupedGemm& gemm) {
  const auto& lhs = gemm.lhs;
  for (const auto& operand : gemm.operands)
    for (const auto& [x, w] : operand.epilogues) {
      const int64_t columns = lhs.transposed ? w.out : w.in;
      EK_CHECK(x.rows == lhs.rows && columns == operand.columns && !w.scales, kShape, "a product: a low-rank term has ",
               x.rows, " rows and ", columns, " columns, expected ", lhs.rows, " and ", operand.columns,
               ", not of int8");
    }
}

void pack_epilogues(GroupedGemm& gemm, GemmScratch& scratch, int64_t threads) {
  const auto& lhs = gemm.lhs;
  int64_t elements = 0;
  for (auto& operand : gemm.operands)
    for (const auto& [x, w] : operand.epilogues) {
      operand.packed_epilogues.push_back({{gemm_kernels(scratch.instructions, Arithmetic::kFp32),
                                           {.x = x.data, .row_stride = x.stride, .k_stride = 1, .scale = x.scale},
                                           lhs.rows,
                                           lhs.transposed ? w.in : w.out,
                                           lhs.transposed},
                                          as_sub_matrix(w),
                                          nullptr});
      elements += lhs.rows * operand.packed_epilogues.back().lhs.depth;
    }
  float* packed = scratch.epilogues.at_least(elements);
  for (auto& operand : gemm.operands)
    for (auto& epilogue : operand.packed_epilogues) {
      pack(epilogue.lhs, {0, epilogue.lhs.depth, packed}, packed, threads);
      epilogue.packed = packed;
      packed += epilogue.lhs.rows * epilogue.lhs.depth;
    }
}

void multiply_all(const GroupedGemm& gemm, GemmScratch& scratch, int64_t threads) {
  const auto& lhs = gemm.lhs;
  const int64_t block = lhs.block(), most_terms = std::max(block, kMaxPackedElements / lhs.rows / kBlockSteps * block);
  const auto work_tiles = work_tiles_of(gemm, threads);
  const auto count = static_cast<int64_t>(work_tiles.size());
  // The last tile of a block may be read as if it had row_multiple rows.
  float* x =
      scratch.x.at_least(lhs.packed_offset(std::min(most_terms, lhs.depth)) + lhs.kernels.row_multiple * kBlockSteps);
  const int64_t elements_per_thread = workspace_elements(lhs, work_tiles);
  float* workspaces = scratch.w.at_least(threads * elements_per_thread);
  for (int64_t k = 0; k < lhs.depth; k += most_terms) {
    const KRange range{k, std::min(k + most_terms, lhs.depth), x};
    pack(lhs, range, x, threads);
    for_each_work_tile(count, threads, [&](int64_t i, int64_t next, int64_t thread) {
      const AmxTileScope tile_scope(lhs.kernels);
      const auto& work = work_tiles[static_cast<size_t>(i)];
      float* workspace = workspaces + thread * elements_per_thread;
      lhs.streamed() ? stream(gemm, range, work, workspace)
                     : multiply(gemm, range, work, next < count ? &work + (next - i) : nullptr, workspace);
    });
  }
}

void clear_result(const GroupedGemm& gemm) {
  for (const auto& operand : gemm.operands)
    for (int64_t row = 0; row < gemm.lhs.rows && !operand.y.add; ++row)
      std::fill_n(operand.y.data + row * operand.y.stride, operand.columns, 0.0f);
}

// Returns whether epilogues can be added tile by tile: their float32 kernels must have the same tile sizes.
bool can_fuse_epilogues(const PackedLhs& lhs, const GemmScratch& scratch) {
  const auto& single = gemm_kernels(scratch.instructions, Arithmetic::kFp32);
  return lhs.depth > 0 && !lhs.streamed() && lhs.kernels.tile_rows == single.tile_rows &&
         lhs.kernels.panel_width == single.panel_width;
}

void run_gemm(GroupedGemm gemm, GemmScratch& scratch) {
  const auto& lhs = gemm.lhs;
  if (lhs.rows == 0) return;
  const int64_t threads = threads_for(gemm);
  const bool fused = can_fuse_epilogues(lhs, scratch);
  if (fused) pack_epilogues(gemm, scratch, threads);
  lhs.depth > 0 ? multiply_all(gemm, scratch, threads) : clear_result(gemm);
  if (fused) return;
  for (const auto& operand : gemm.operands)
    for (const auto& [x, w] : operand.epilogues) {
      const GroupedOperand after{w, {operand.y.data, operand.y.stride, true}};
      lhs.transposed ? gemm_nt(x, std::span(&after, 1), scratch) : gemm_nn(x, after, scratch);
    }
}

}  // namespace

SubMatrix as_sub_matrix(const StoredMatrix& w) { return {w.data, w.dtype, w.stride, w.out, w.in}; }

void gemm_nt(const Activations& x, std::span<const GroupedOperand> group, GemmScratch& scratch) {
  if (group.empty()) return;
  GroupedGemm gemm{.lhs = {gemm_kernels(scratch.instructions, x.arithmetic),
                           {.x = x.data, .row_stride = x.stride, .k_stride = 1, .scale = x.scale},
                           x.rows,
                           group.front().w.in,
                           true},
                   .operands = {}};
  for (const auto& [w, y, epilogues] : group) {
    EK_CHECK(w.in == gemm.lhs.depth, kShape, "a product: weights side by side have ", gemm.lhs.depth, " and ", w.in,
             " columns, expected as many each");
    gemm.operands.push_back({as_sub_matrix(w), w.out, w.scales, y, epilogues});
  }
  check(gemm);
  if (!gemm_nt_unpacked(x, group, scratch)) run_gemm(std::move(gemm), scratch);
}

void gemm_nt(const Activations& x, const StoredMatrix& w, const Result& y, GemmScratch& scratch) {
  const GroupedOperand one{w, y};
  gemm_nt(x, std::span(&one, 1), scratch);
}

void gemm_nn(const Activations& x, const GroupedOperand& operand, GemmScratch& scratch) {
  const auto& [w, y, epilogues] = operand;
  GroupedGemm packed{.lhs = {gemm_kernels(scratch.instructions, x.arithmetic),
                             {.x = x.data, .row_stride = x.stride, .k_stride = 1, .scale = x.scale, .scales = w.scales},
                             x.rows,
                             w.out,
                             false},
                     .operands = {{as_sub_matrix(w), w.in, nullptr, y, epilogues}}};
  check(packed);
  if (!gemm_nn_unpacked(x, operand, scratch)) run_gemm(std::move(packed), scratch);
}

void gemm_nn(const Activations& x, const StoredMatrix& w, const Result& y, GemmScratch& scratch) {
  gemm_nn(x, GroupedOperand{w, y}, scratch);
}

void gemm_tn(const Activations& x, int64_t width, const StoredMatrix& w, const Result& y, GemmScratch& scratch) {
  EK_CHECK(x.rows == w.out, kShape, "a product: the operands have ", x.rows, " and ", w.out, " rows, expected as many");
  run_gemm({.lhs = {gemm_kernels(scratch.instructions, Arithmetic::kFp32),
                    {.x = x.data, .row_stride = 1, .k_stride = x.stride, .scale = x.scale, .scales = w.scales},
                    width,
                    w.out,
                    false},
            .operands = {{as_sub_matrix(w), w.in, nullptr, y, {}}}},
           scratch);
}

}  // namespace evenkeel::nn::kernels
