// Tiles of bfloat16: 32 terms of 16 rows and of 16 columns at a time, by one instruction where the processor has it
// (AMX), else by loops to the same bits. Rows of x, and of a weight that lies, are taken as they lie; panels are those
// of pairs.
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "nn/kernels/matmul/packed_kernels.h"
#include "nn/kernels/matmul/packed_matmul.h"
#include "nn/kernels/primitives/vector.h"

namespace evenkeel::kernels {
namespace {

constexpr int64_t kSide = 16;  // rows, columns, and steps of two terms, of a tile
constexpr int64_t kTileRows = 2 * kSide, kMostColumns = 2 * kSide;
static_assert(kTileRows <= kMostLyingRows);

// sums = (before +) rows * panel. Whole tiles are read and written, whatever rows and columns there are.
struct TileProduct {
  const void* rows;    // [height][steps]
  int64_t row_bytes;   // from one to the next
  const float* panel;  // [steps][panel_stride]
  int64_t panel_stride;
  int64_t height, columns, steps;  // steps: those of whole tiles
  const float* before;
  int64_t before_stride;
  float* sums;
  int64_t sums_stride;
};

// ---- where there are no such instructions

float first_of(float pair) { return std::bit_cast<float>(std::bit_cast<uint32_t>(pair) << 16); }
float second_of(float pair) { return std::bit_cast<float>(std::bit_cast<uint32_t>(pair) & 0xffff0000u); }

// One row and one tile's terms: products of bfloat16 are exact, so a multiply-add rounds once, fused or not.
struct AddTile {
  static EK_INLINE void run(const char* row, const float* panel, int64_t stride, int64_t columns, float* sums) {
    float first[kMostColumns] = {}, second[kMostColumns] = {};
    for (int64_t step = 0; step < kSide; ++step, panel += stride) {
      float pair;
      std::memcpy(&pair, row + step * static_cast<int64_t>(sizeof pair), sizeof pair);
      const float x = first_of(pair), next = second_of(pair);
      for (int64_t c = 0; c < columns; ++c) {
        first[c] += x * first_of(panel[c]);
        second[c] += next * second_of(panel[c]);
      }
    }
    for (int64_t c = 0; c < columns; ++c) sums[c] += first[c] + second[c];
  }
};

struct Loops {
  static void enter() {}
  static void leave() {}

  static void multiply(const TileProduct& of, Ahead&) {
    const auto* row = static_cast<const char*>(of.rows);
    for (int64_t r = 0; r < of.height; ++r, row += of.row_bytes) {
      float* sums = of.sums + r * of.sums_stride;
      if (!of.before)
        std::fill_n(sums, of.columns, 0.0f);
      else if (of.before != of.sums)
        std::copy_n(of.before + r * of.before_stride, of.columns, sums);
      for (int64_t step = 0; step < of.steps; step += kSide)
        vectorised<AddTile>(row + step * static_cast<int64_t>(sizeof(float)), of.panel + step * of.panel_stride,
                            of.panel_stride, of.columns, sums);
    }
  }
};

// ---- where there are

#if defined(__x86_64__)
#define EK_TARGET __attribute__((target("amx-tile,amx-bf16")))

// Assembly, as the compiler's own functions take numbers of registers from the preprocessor alone.
template <int kTile>
EK_TARGET EK_INLINE void load(const void* from, int64_t row_bytes) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(row_bytes), "i"(kTile) : "memory");
}
template <int kTile>
EK_TARGET EK_INLINE void store(float* to, int64_t row_bytes) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(row_bytes), "i"(kTile) : "memory");
}
template <int kTile>
EK_TARGET EK_INLINE void clear() {
  __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
template <int kSum, int kRows, int kColumns>
EK_TARGET EK_INLINE void multiply_add() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kRows), "i"(kColumns));
}

// R x C tiles of sums in the first registers, R of rows and C of the panel in the others.
template <int R, int C>
struct Tiles {
  static constexpr int kRows = 4, kColumns = 6;
  static_assert(R <= 2 && C <= 2);

  template <int T = 0>
  static EK_TARGET EK_INLINE void begin(const TileProduct& of) {
    const auto stride = of.before_stride * static_cast<int64_t>(sizeof(float));
    of.before ? load<T>(of.before + T / C * kSide * of.before_stride + T % C * kSide, stride) : clear<T>();
    if constexpr (T + 1 < R * C) begin<T + 1>(of);
  }
  template <int T = 0>
  static EK_TARGET EK_INLINE void end(const TileProduct& of) {
    const auto stride = of.sums_stride * static_cast<int64_t>(sizeof(float));
    store<T>(of.sums + T / C * kSide * of.sums_stride + T % C * kSide, stride);
    if constexpr (T + 1 < R * C) end<T + 1>(of);
  }
  template <int T = 0>
  static EK_TARGET EK_INLINE void add(const char* rows, int64_t row_bytes, const float* panel, int64_t panel_bytes) {
    constexpr int r = T / C, c = T % C;
    if constexpr (c == 0) load<kRows + r>(rows + r * kSide * row_bytes, row_bytes);
    if constexpr (r == 0) load<kColumns + c>(panel + c * kSide, panel_bytes);
    multiply_add<T, kRows + r, kColumns + c>();
    if constexpr (T + 1 < R * C) add<T + 1>(rows, row_bytes, panel, panel_bytes);
  }

  static EK_TARGET void multiply(const TileProduct& of, Ahead& ahead) {
    const auto* rows = static_cast<const char*>(of.rows);
    const auto panel_bytes = of.panel_stride * static_cast<int64_t>(sizeof(float));
    Ahead lines = ahead;
    begin(of);
    for (int64_t step = 0; step < of.steps; step += kSide, rows += kSide * sizeof(float)) {
      lines.fetch(lines.pace);
      add(rows, of.row_bytes, of.panel + step * of.panel_stride, panel_bytes);
    }
    end(of);
    ahead = lines;
  }
};

struct Amx {
  // Eight registers of 16 rows of 64 bytes, for the calling thread until it leaves: the system need not save them then.
  static EK_TARGET void enter() {
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14]{};
      uint16_t row_bytes[16]{};
      uint8_t rows[16]{};
    } shape;
    std::fill_n(shape.row_bytes, 8, uint16_t{64});
    std::fill_n(shape.rows, 8, uint8_t{kSide});
    __asm__ volatile("ldtilecfg %0" : : "m"(shape));
  }
  static EK_TARGET void leave() { __asm__ volatile("tilerelease"); }

  static void multiply(const TileProduct& of, Ahead& ahead) {
    const bool two = of.height > kSide;
    if (of.columns > kSide) return two ? Tiles<2, 2>::multiply(of, ahead) : Tiles<1, 2>::multiply(of, ahead);
    two ? Tiles<2, 1>::multiply(of, ahead) : Tiles<1, 1>::multiply(of, ahead);
  }
};
#undef EK_TARGET
#endif

// ---- the table

// [height][steps of whole tiles], the last ones 0.
void pack_tile(const TileSource& x, int64_t height, int64_t depth, float* out) {
  const int64_t terms = (depth + 2 * kSide - 1) / (2 * kSide) * (2 * kSide);
  auto* to = reinterpret_cast<c10::BFloat16*>(out);
  float scaled[2 * kBlock];
  for (int64_t r = 0; r < height; ++r, to += terms) {
    const float* from = x.x + r * x.row_stride;
    if (x.scales)
      scaled_product(x.scale, x.scales, from, scaled, depth);
    else if (x.scale != 1)
      scaled_copy(x.scale, from, scaled, depth);
    narrow(x.scales || x.scale != 1 ? scaled : from, to, depth);
    std::fill_n(to + depth, terms - depth, c10::BFloat16(0.0f));
  }
}

struct AddScaled {
  static EK_INLINE void run(const float* scales, const float* sums, const float* before, float* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = __builtin_fmaf(scales[i], sums[i], before ? before[i] : 0.0f);
  }
};

// Of a tile that is not whole, or scaled: its sums by themselves first.
template <typename Machine>
void multiply_aside(TileProduct product, const TileResult& y, Ahead& ahead) {
  alignas(64) float sums[kTileRows * kTileRows];
  const bool adds = y.before && !y.scales;
  product.sums = sums;
  product.sums_stride = product.panel_stride;
  for (int64_t r = 0; r < product.height && adds; ++r)
    std::copy_n(y.before + r * y.before_stride, y.columns, sums + r * product.sums_stride);
  product.before = adds ? sums : nullptr;
  product.before_stride = product.sums_stride;
  Machine::multiply(product, ahead);
  for (int64_t r = 0; r < product.height; ++r) {
    const float* from = sums + r * product.sums_stride;
    float* to = y.y + r * y.stride;
    if (y.scales)
      vectorised<AddScaled>(y.scales, from, y.before ? y.before + r * y.before_stride : nullptr, to, y.columns);
    else
      std::copy_n(from, y.columns, to);
  }
}

using TableOf = const PackedKernels& (*)();

template <TableOf kPairs, typename Machine>
struct Kernels {
  static int64_t width() { return kPairs().panel_width; }

  static void pack_panel(const StoredPart& w, bool transposed, float* out) {
    kPairs().pack_panel(w, transposed, out);
    const int64_t terms = transposed ? w.columns : w.rows, columns = transposed ? w.rows : w.columns;
    const int64_t steps = kPairs().steps(terms), whole = table().steps(terms);
    for (int64_t column = 0; column < columns && steps < whole; column += width(), out += kBlock * width())
      std::fill(out + steps * width(), out + whole * width(), 0.0f);
  }
  static void multiply(int64_t height, int64_t steps, const float* tile, const float* panel, const TileResult& y,
                       Ahead& ahead) {
    const TileProduct product{.rows = tile,
                              .row_bytes = steps * static_cast<int64_t>(sizeof(float)),
                              .panel = panel,
                              .panel_stride = width(),
                              .height = height,
                              .columns = y.columns,
                              .steps = steps,
                              .before = y.before,
                              .before_stride = y.before_stride,
                              .sums = y.y,
                              .sums_stride = y.stride};
    const bool whole = height % kSide == 0 && y.columns % kSide == 0 && !y.scales;
    whole ? Machine::multiply(product, ahead) : multiply_aside<Machine>(product, y, ahead);
  }
  static void multiply_lying(const LyingRows& lying, const LyingPanel& panel, float* sums, bool add, Ahead& ahead) {
    const auto& w = lying.rows;
    TileProduct product{.rows = w.data,
                        .row_bytes = w.bytes(w.stride),
                        .panel = panel.steps,
                        .panel_stride = panel.width,
                        .height = w.rows,
                        .columns = panel.columns,
                        .steps = w.columns / 2,
                        .before = add ? sums : nullptr,
                        .before_stride = panel.width,
                        .sums = sums,
                        .sums_stride = panel.width};
    if (w.rows % kSide == 0) return Machine::multiply(product, ahead);
    alignas(64) char copies[kTileRows * kBlock * sizeof(float)];
    for (int64_t k = 0; k < w.columns; k += 2 * kBlock, product.before = sums) {
      const int64_t terms = std::min(2 * kBlock, w.columns - k), bytes = w.bytes(terms);
      for (int64_t r = 0; r < w.rows; ++r)
        std::memcpy(copies + r * bytes, w.part(r, k, 1, terms).data, static_cast<size_t>(bytes));
      product.rows = copies;
      product.row_bytes = bytes;
      product.panel = panel.steps + k / 2 * panel.width;
      product.steps = terms / 2;
      Machine::multiply(product, ahead);
    }
  }

  static const PackedKernels& table() {
    static const PackedKernels made = [] {
      PackedKernels tiles = kPairs();
      tiles.tile_rows = kTileRows;
      tiles.whole_rows = kSide;
      tiles.whole_steps = kSide;
      tiles.streamed_rows = 0;
      tiles.lying_rows = kTileRows;
      tiles.lying_terms = std::numeric_limits<int64_t>::max();
      tiles.lying_vectors = kMostColumns / kSide;
      tiles.lying_piece = 256;
      tiles.lying_bfloat16 = {1, std::numeric_limits<int64_t>::max()};
      tiles.enter = Machine::enter;
      tiles.leave = Machine::leave;
      tiles.pack_tile = pack_tile;
      tiles.pack_panel = pack_panel;
      tiles.multiply = multiply;
      tiles.multiply_and_pack = nullptr;
      tiles.stream = nullptr;
      tiles.multiply_lying = multiply_lying;
      return tiles;
    }();
    return made;
  }
};

template <Isa kIsa>
const PackedKernels& pairs() {
  return packed_kernels(kIsa, Arithmetic::kPairs);
}

}  // namespace

const PackedKernels& packed_kernels_tiles([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512 && has_bfloat16_tiles()) return Kernels<pairs<Isa::kAvx512>, Amx>::table();
  if (isa == Isa::kAvx512) return Kernels<pairs<Isa::kAvx512>, Loops>::table();
  if (isa == Isa::kAvx2) return Kernels<pairs<Isa::kAvx2>, Loops>::table();
#endif
  return Kernels<pairs<Isa::kBaseline>, Loops>::table();
}

}  // namespace evenkeel::kernels
