/// \file  Defines the interface between the GEMM drivers (packed_gemm.cpp, unpacked_gemm.cpp) and the loops of one
/// instruction set and arithmetic. Each source file in isa/ provides a GemmKernels table; kernel_dispatcher.h selects
/// one.
///
/// Terms. A *step* is the 32 bits of a row of x, and of a column of the weight, that one multiply-add reads: one
/// float32 term, or a pair of bfloat16 terms. A *block* is kBlockSteps steps of the summation index k. A *tile* is some
/// rows of x, and a *panel* is the columns of y that a tile updates at once. docs/kernels.md has a picture.
#pragma once

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstdint>

#include "base/system/dispatch.h"
#include "nn/kernels/matmul/kernel_dispatcher.h"

namespace evenkeel::nn::kernels {

constexpr int64_t kBlockSteps = 128;                       ///< steps summed from 0 before the sum is added to y
constexpr int64_t kMaxUnpackedVectors = 3;                 ///< vectors per row of a panel for multiply_unpacked()
constexpr int64_t kMaxUnpackedRows = 32;                   ///< rows per call of multiply_unpacked()
constexpr int64_t kMinParallelMacs = int64_t{1} << 21;     ///< multiply-adds from which a GEMM uses several threads
constexpr int64_t kMinParallelPacking = int64_t{1} << 16;  ///< elements of x from which several threads pack them
constexpr int64_t kMaxPackedElements = int64_t{1} << 22;   ///< steps of x that are packed at once (16 MiB)

/// A rectangular part of a stored weight. `data` points at its first element; the stride is in elements.
struct SubMatrix {
  const void* data = nullptr;
  c10::ScalarType dtype = c10::kFloat;
  int64_t stride = 0, rows = 0, columns = 0;

  /// Returns the size of `elements` elements in bytes.
  int64_t bytes(int64_t elements) const { return elements * static_cast<int64_t>(c10::elementSize(dtype)); }
  /// Returns the part with `row_count` rows and `column_count` columns that begins at (row, column) of this one.
  SubMatrix part(int64_t row, int64_t column, int64_t row_count, int64_t column_count) const {
    return {static_cast<const char*>(data) + bytes(row * stride + column), dtype, stride, row_count, column_count};
  }
};

struct StoredMatrix;
/// Returns the whole of `w`, without its scales.
SubMatrix as_sub_matrix(const StoredMatrix& w);

/// Prefetches the rows of a SubMatrix, cache line by cache line, row after row. Kernels read a weight in another order
/// than memory order, which the hardware prefetcher does not recognise. Lines go to the second-level cache, because
/// there are only a few line-fill buffers for the first level.
struct Prefetcher {
  const char* row = nullptr;  ///< the row that is being fetched
  int64_t row_bytes = 0, fetched = 0, stride_bytes = 0, rows = 0;
  int64_t bytes_per_call = 0;  ///< set by spread_over(); 0: no prefetching

  Prefetcher() = default;
  explicit Prefetcher(const SubMatrix& w)
      : row(static_cast<const char*>(w.data)),
        row_bytes(w.bytes(w.columns)),
        stride_bytes(w.bytes(w.stride)),
        rows(w.rows) {}
  /// Divides all rows among `calls` calls of fetch(bytes_per_call). If that is more than 8 cache lines per call,
  /// prefetching is switched off, because the calls would wait for memory.
  void spread_over(int64_t calls) {
    constexpr int64_t kLine = 64, kMaxLines = 8;
    const int64_t bytes = std::max<int64_t>(calls, 1) * kLine, lines = (rows * row_bytes + bytes - 1) / bytes;
    bytes_per_call = lines <= kMaxLines ? lines * kLine : 0;
  }
  /// Prefetches the next `kBytes` bytes.
  template <int64_t kBytes>
  EK_INLINE void fetch() {
    fetch(kBytes);
  }
  EK_INLINE void fetch(int64_t bytes) {
    if (rows <= 0) return;
    for (int64_t line = 0; line < bytes; line += 64) __builtin_prefetch(row + fetched + line, 0, 2);
    fetched += bytes;
    if (fetched < row_bytes) return;
    fetched = 0;
    row += stride_bytes;
    --rows;
  }
};

/// The destination of a tile: y = initial + scales * sum. Strides are in elements.
struct TileResult {
  float* y = nullptr;
  int64_t stride = 0, columns = 0;
  const float* scales = nullptr;   ///< one per column; null: 1
  const float* initial = nullptr;  ///< what the sum is added to; null: 0
  int64_t initial_stride = 0;

  /// Makes the result accumulate into y.
  void accumulate() {
    initial = y;
    initial_stride = stride;
  }
};

/// Rows of x before packing: element (r, k) is x[r * row_stride + k * k_stride] * scale * scales[k].
struct LhsSource {
  const float* x = nullptr;
  int64_t row_stride = 0, k_stride = 0;
  float scale = 1;
  const float* scales = nullptr;  ///< null: 1
};

/// Rows of an operand that are read in place. A row is a whole number of 32-bit words.
struct UnpackedRows {
  SubMatrix rows;
  float scale = 1;  ///< multiplies the elements; float32 only
};

/// A packed panel [steps][width] for multiply_unpacked(). The width is a whole number of vectors, at most
/// unpacked_vectors. Only the first `columns` columns are used.
struct PanelView {
  const float* steps = nullptr;
  int64_t width = 0, columns = 0;
};

/// A closed range of row counts. Empty by default.
struct RowRange {
  int64_t first = 1, last = 0;

  bool contains(int64_t rows) const { return first <= rows && rows <= last; }
};

/// The kernels of one instruction set and arithmetic, and their sizes.
struct GemmKernels {
  int64_t terms_per_step;       ///< 1 (float32) or 2 (bfloat16)
  int64_t step_multiple;        ///< blocks are padded with zeros to a multiple of this many steps
  int64_t tile_rows;            ///< largest number of rows of a tile
  int64_t row_multiple;         ///< tiles have a multiple of this many rows, except the last; a power of two
  int64_t panel_width;          ///< columns of a panel
  int64_t max_streamed_rows;    ///< up to this many rows of x, stream() is used and the weight is not packed
  int64_t lanes;                ///< float32 lanes of a vector
  int64_t unpacked_rows;        ///< largest number of rows for multiply_unpacked(); a divisor or multiple of `lanes`
  int64_t unpacked_terms;       ///< largest number of terms for multiply_unpacked()
  int64_t unpacked_vectors;     ///< vectors per row of the panel of multiply_unpacked(), at most kMaxUnpackedVectors
  int64_t unpacked_piece;       ///< largest number of rows that a thread takes at once
  RowRange unpacked_bf16_rows;  ///< numbers of rows of x for which a bfloat16 weight is best read in place

  /// Returns the number of steps of `terms` terms, with padding.
  int64_t steps(int64_t terms) const {
    const int64_t multiple = terms_per_step * step_multiple;
    return (terms + multiple - 1) / multiple * step_multiple;
  }
  /// Returns the number of terms of a block.
  int64_t block_terms() const { return kBlockSteps * terms_per_step; }

  /// A thread calls enter() before and leave() after it uses the functions below, except the packing functions. Null:
  /// nothing to do.
  void (*enter)();
  void (*leave)();

  /// Packs `depth` terms of `height` rows of x for multiply(). `out` has steps(depth) * height elements.
  void (*pack_lhs_tile)(const LhsSource& x, int64_t height, int64_t depth, float* out);

  /// Packs `depth` terms of `height` <= lanes rows of x for multiply_unpacked(): out[step * stride + row].
  void (*pack_lhs_lanes)(const LhsSource& x, int64_t height, int64_t depth, float* out, int64_t stride);

  /// Packs one block of a weight. `out` is [kBlockSteps][panel_width] steps.
  /// transposed: w is [columns of y, terms] with at most panel_width rows, and one panel is written.
  /// not transposed: w is [terms, columns of y], and one panel after the other is written.
  /// Missing columns are written as 0 up to a whole vector.
  void (*pack_panel)(const SubMatrix& w, bool transposed, float* out);

  /// Computes y = initial + tile * panel for at most kBlockSteps steps. \param height  rows of the tile
  void (*multiply)(int64_t height, int64_t steps, const float* tile, const float* panel, const TileResult& y,
                   Prefetcher& prefetcher);

  /// Computes multiply() for a weight that is not packed yet, and writes its panel for the tiles that follow. w is
  /// [terms, panel_width]; the number of terms is a multiple of terms_per_step. Null: packing all panels of a work tile
  /// (gemm.h) first is faster.
  void (*multiply_and_pack)(int64_t height, const float* tile, const SubMatrix& w, float* panel, const TileResult& y,
                            Prefetcher& prefetcher);

  /// Computes y = initial + x w^T (transposed) or x w for one tile of at most max_streamed_rows rows and all blocks.
  /// The weight is read once and is not packed. \param tiles  the packed blocks of x, one after the other
  /// \param sums  not transposed only: working memory of `height` elements per column, columns rounded up to a vector
  void (*stream)(int64_t height, const float* tiles, const SubMatrix& w, bool transposed, const TileResult& y,
                 float* sums);

  /// Computes sums [rows][panel.width] = rows * panel, or += with `add`, for at most unpacked_rows rows and
  /// unpacked_terms terms. Columns from panel.columns on may be left unchanged. It prefetches as many bytes as it
  /// reads.
  void (*multiply_unpacked)(const UnpackedRows& rows, const PanelView& panel, float* sums, bool add,
                            Prefetcher& prefetcher);

  /// Stores sums [height][width] of multiply_unpacked() in y.
  void (*store_rows)(const float* sums, int64_t height, int64_t width, const TileResult& y);
  /// Stores the transpose: y is [columns of the panel][height], with height <= lanes.
  void (*store_transposed)(const float* sums, int64_t height, int64_t width, const TileResult& y);
};

/// Calls enter() and leave() of a table. For AMX this configures and releases the tile registers of the calling thread;
/// for other instruction sets it does nothing.
class AmxTileScope {
 public:
  explicit AmxTileScope(const GemmKernels& kernels) : kernels_(kernels) {
    if (kernels_.enter) kernels_.enter();
  }
  ~AmxTileScope() {
    if (kernels_.leave) kernels_.leave();
  }
  AmxTileScope(const AmxTileScope&) = delete;
  AmxTileScope& operator=(const AmxTileScope&) = delete;

 private:
  const GemmKernels& kernels_;
};

}  // namespace evenkeel::nn::kernels
