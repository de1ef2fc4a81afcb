/// \file  The loops under packed_product.h, one copy per instruction set and arithmetic. Names: a step is what a sum
/// takes of a row and of a column, one term as float32 or a pair of terms as bfloat16 in the room of one;
/// a block is 128 steps of the sums (k), a tile some rows of x, a panel the columns of y that one tile updates at once.
#pragma once

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstdint>

#include "base/system/dispatch.h"

namespace evenkeel::kernels {

constexpr int64_t kBlock = 128;                      ///< steps summed from 0 before they are added to y
constexpr int64_t kMostLyingVectors = 3;             ///< of a panel that rows meet as they lie
constexpr int64_t kMostLyingRows = 32;               ///< that meet it at once
constexpr int64_t kWorthThreads = int64_t{1} << 21;  ///< multiply-adds
constexpr int64_t kWorthPacking = int64_t{1} << 16;  ///< numbers; more of x are packed by all threads

/// Part of a stored weight, pointing at its first number.
struct StoredPart {
  const void* data = nullptr;
  c10::ScalarType dtype = c10::kFloat;
  int64_t stride = 0, rows = 0, columns = 0;

  int64_t bytes(int64_t numbers) const { return numbers * static_cast<int64_t>(c10::elementSize(dtype)); }
  StoredPart part(int64_t row, int64_t column, int64_t row_count, int64_t column_count) const {
    return {static_cast<const char*>(data) + bytes(row * stride + column), dtype, stride, row_count, column_count};
  }
};

struct StoredMatrix;
enum class Arithmetic : uint8_t;
StoredPart all_of(const StoredMatrix& w);

/// Cache lines that will be wanted soon, one row after the other as they lie: what reads a weight in another order than
/// memory has it leaves the processor's own foresight, which follows lines that follow each other, nothing to see.
/// Fetched into the second level, where waiting for them takes none of a thread's few places.
struct Ahead {
  const char* at = nullptr;
  int64_t run = 0, done = 0, stride = 0, rows = 0;
  int64_t pace = 0;  ///< bytes to fetch while a tile's 32 terms are multiplied; 0: the processor is quicker by itself

  Ahead() = default;
  explicit Ahead(const StoredPart& w)
      : at(static_cast<const char*>(w.data)), run(w.bytes(w.columns)), stride(w.bytes(w.stride)), rows(w.rows) {}
  /// All of it in so many times, unless those are so few that they would wait for lines.
  void spread_over(int64_t times) {
    constexpr int64_t kLine = 64, kMostLines = 8;
    const int64_t bytes = std::max<int64_t>(times, 1) * kLine, lines = (rows * run + bytes - 1) / bytes;
    pace = lines <= kMostLines ? lines * kLine : 0;
  }
  /// The next so many bytes.
  template <int64_t kBytes>
  EK_INLINE void fetch() {
    fetch(kBytes);
  }
  EK_INLINE void fetch(int64_t bytes) {
    if (rows <= 0) return;
    for (int64_t line = 0; line < bytes; line += 64) __builtin_prefetch(at + done + line, 0, 2);
    done += bytes;
    if (done < run) return;
    done = 0;
    at += stride;
    --rows;
  }
};

/// Where a tile goes: `columns` of y, each with a scale where `scales` is given, and what it is added to, if anything.
struct TileResult {
  float* y = nullptr;
  int64_t stride = 0, columns = 0;
  const float* scales = nullptr;
  const float* before = nullptr;
  int64_t before_stride = 0;

  void add_from_now_on() {
    before = y;
    before_stride = stride;
  }
};

/// Rows of x as they are read: x[k * k_stride + r * row_stride], times scale and, where given, scales[k].
struct TileSource {
  const float* x = nullptr;
  int64_t row_stride = 0, k_stride = 0;
  float scale = 1;
  const float* scales = nullptr;
};

/// Rows of an operand as they lie, of a type that lies well: whole words of it.
struct LyingRows {
  StoredPart rows;
  float scale = 1;  ///< of float32
};

/// What they meet: [steps][width], a multiple of the lanes and at most lying_vectors of them, of which the first
/// `columns` are asked for.
struct LyingPanel {
  const float* steps = nullptr;
  int64_t width = 0, columns = 0;
};

/// Numbers of rows, from first to last; none, by default.
struct RowRange {
  int64_t first = 1, last = 0;

  bool holds(int64_t rows) const { return first <= rows && rows <= last; }
};

struct PackedKernels {
  int64_t terms;            ///< of a step
  int64_t whole_steps;      ///< a multiple of which blocks have, the last terms 0
  int64_t tile_rows;        ///< most rows of a tile
  int64_t whole_rows;       ///< a multiple of which tiles have, but the last; a power of two
  int64_t panel_width;      ///< columns of a panel
  int64_t streamed_rows;    ///< up to so many rows the weight goes through registers without being packed
  int64_t lanes;            ///< numbers of a vector
  int64_t lying_rows;       ///< most rows that multiply_lying takes, a divisor of lanes or a multiple
  int64_t lying_terms;      ///< and most terms
  int64_t lying_vectors;    ///< and of a panel, at most kMostLyingVectors
  int64_t lying_piece;      ///< rows that a thread takes at once, where they are dealt
  RowRange lying_bfloat16;  ///< of x, that meet a weight in bfloat16 best as it lies

  int64_t steps(int64_t of_terms) const {
    const int64_t whole_terms = terms * whole_steps;
    return (of_terms + whole_terms - 1) / whole_terms * whole_steps;
  }
  int64_t block_terms() const { return kBlock * terms; }

  /// Before and after a thread uses any of the following but those that pack; null where nothing is to be done.
  void (*enter)();
  void (*leave)();
  /// Rows of one tile as multiply() takes them, `depth` terms of a block.
  void (*pack_tile)(const TileSource& x, int64_t height, int64_t depth, float* out);
  /// out[step * stride + r], r < height <= lanes, as multiply_lying() takes them.
  void (*pack_lanes)(const TileSource& x, int64_t height, int64_t depth, float* out, int64_t stride);
  /// out [kBlock][panel_width], steps, of w^T when `transposed`: columns of w are the terms, its rows at most a panel's
  /// columns of y; else of w, panel after panel. Columns beyond the last are 0 up to a whole vector.
  void (*pack_panel)(const StoredPart& w, bool transposed, float* out);
  /// y = (before +) tile * panel over at most kBlock steps.
  void (*multiply)(int64_t height, int64_t steps, const float* tile, const float* panel, const TileResult& y,
                   Ahead& ahead);
  /// As multiply(), of a part of a weight that is not packed: w [terms, panel_width], whole steps; writes the panel.
  /// Null where a share's panels are best packed all at once.
  void (*multiply_and_pack)(int64_t height, const float* tile, const StoredPart& w, float* panel, const TileResult& y,
                            Ahead& ahead);
  /// y = (before +) x w^T (transposed) or x w for one packed tile of at most streamed_rows rows over all blocks of
  /// terms, reading w once. `tiles` holds the blocks of x in turn; `sums` is room, for x w alone: height numbers for
  /// each column, their count rounded up to a whole vector.
  void (*stream)(int64_t height, const float* tiles, const StoredPart& w, bool transposed, const TileResult& y,
                 float* sums);
  /// sums [rows][panel.width] = (or, to `add`, +=) rows * panel, at most lying_rows rows of lying_terms; columns not
  /// asked for are left out, and their sums as they were, as far as that saves anything. As many bytes as the rows have
  /// are fetched meanwhile.
  void (*multiply_lying)(const LyingRows& rows, const LyingPanel& panel, float* sums, bool add, Ahead& ahead);
  /// y = sums [height][width] as they lie, or across: y [columns of the panel][height], height <= lanes.
  void (*put_lying)(const float* sums, int64_t height, int64_t width, const TileResult& y);
  void (*put_across)(const float* sums, int64_t height, int64_t width, const TileResult& y);
};

/// While it lives, the calling thread may multiply.
class InUse {
 public:
  explicit InUse(const PackedKernels& kernels) : kernels_(kernels) {
    if (kernels_.enter) kernels_.enter();
  }
  ~InUse() {
    if (kernels_.leave) kernels_.leave();
  }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;

 private:
  const PackedKernels& kernels_;
};

/// In bfloat16, for weights in bfloat16 and int8 alone.
const PackedKernels& packed_kernels(Isa isa, Arithmetic arithmetic);

}  // namespace evenkeel::kernels
