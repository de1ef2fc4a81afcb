// The kernels for tiles of bfloat16: one AMX instruction multiplies 32 terms of 16 rows and 16 columns. Processors
// without AMX run loops that give the same bits. Rows of x, and of a weight that is read in place, are row-major;
// panels have the layout of the pair kernels.
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/system/dispatch.h"
#include "nn/kernels/matmul/gemm_kernels.h"
#include "nn/kernels/matmul/isa/kernel_tables.h"
#include "nn/kernels/primitives/vector.h"

namespace evenkeel::nn::kernels {
namespace {

constexpr int64_t kSide = 16;  // rows, columns and steps (of two terms) of a tile register
constexpr int64_t kMaxTileRows = 2 * kSide, kMaxColumns = 2 * kSide;
static_assert(kMaxTileRows <= kMaxUnpackedRows);

// A product sums = initial + rows * panel. Whole tile registers are read and written, even if `height` and `columns`
// are smaller.
struct TileGemm {
  const void* rows;    // [height][steps]
  int64_t row_bytes;   // distance between rows
  const float* panel;  // [steps][panel_stride]
  int64_t panel_stride;
  int64_t height, columns, steps;  // steps: a multiple of kSide
  const float* initial;
  int64_t initial_stride;
  float* sums;
  int64_t sums_stride;
};

// ---- without AMX

float low_term(float pair) { return std::bit_cast<float>(std::bit_cast<uint32_t>(pair) << 16); }
float high_term(float pair) { return std::bit_cast<float>(std::bit_cast<uint32_t>(pair) & 0xffff0000u); }

// Adds 32 terms to one row of sums. Products of bfloat16 are exact, so a multiply-add rounds once, fused or not.
struct AddTile {
  static EK_INLINE void run(const char* row, const float* panel, int64_t stride, int64_t columns, float* sums) {
    float first[kMaxColumns] = {}, second[kMaxColumns] = {};
    for (int64_t step = 0; step < kSide; ++step, panel += stride) {
      float pair;
      std::memcpy(&pair, row + step * static_cast<int64_t>(sizeof pair), sizeof pair);
      const float x = low_term(pair), next = high_term(pair);
      for (int64_t c = 0; c < columns; ++c) {
        first[c] += x * low_term(panel[c]);
        second[c] += next * high_term(panel[c]);
      }
    }
    for (int64_t c = 0; c < columns; ++c) sums[c] += first[c] + second[c];
  }
};

struct PortableTiles {
  static void enter() {}
  static void leave() {}

  static void multiply(const TileGemm& of, Prefetcher&) {
    const auto* row = static_cast<const char*>(of.rows);
    for (int64_t r = 0; r < of.height; ++r, row += of.row_bytes) {
      float* sums = of.sums + r * of.sums_stride;
      if (!of.initial)
        std::fill_n(sums, of.columns, 0.0f);
      else if (of.initial != of.sums)
        std::copy_n(of.initial + r * of.initial_stride, of.columns, sums);
      for (int64_t step = 0; step < of.steps; step += kSide)
        vectorised<AddTile>(row + step * static_cast<int64_t>(sizeof(float)), of.panel + step * of.panel_stride,
                            of.panel_stride, of.columns, sums);
    }
  }
};

// ---- with AMX

#if defined(__x86_64__)
#define EK_TARGET __attribute__((target("amx-tile,amx-bf16")))

// Inline assembly, because the intrinsics accept register numbers only as preprocessor constants.
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

// R x C tile registers of sums come first, then R of rows and C of the panel.
template <int R, int C>
struct Tiles {
  static constexpr int kRows = 4, kColumns = 6;
  static_assert(R <= 2 && C <= 2);

  template <int T = 0>
  static EK_TARGET EK_INLINE void begin(const TileGemm& of) {
    const auto stride = of.initial_stride * static_cast<int64_t>(sizeof(float));
    of.initial ? load<T>(of.initial + T / C * kSide * of.initial_stride + T % C * kSide, stride) : clear<T>();
    if constexpr (T + 1 < R * C) begin<T + 1>(of);
  }
  template <int T = 0>
  static EK_TARGET EK_INLINE void end(const TileGemm& of) {
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

  static EK_TARGET void multiply(const TileGemm& of, Prefetcher& prefetcher) {
    const auto* rows = static_cast<const char*>(of.rows);
    const auto panel_bytes = of.panel_stride * static_cast<int64_t>(sizeof(float));
    Prefetcher lines = prefetcher;
    begin(of);
    for (int64_t step = 0; step < of.steps; step += kSide, rows += kSide * sizeof(float)) {
      lines.fetch(lines.bytes_per_call);
      add(rows, of.row_bytes, of.panel + step * of.panel_stride, panel_bytes);
    }
    end(of);
    prefetcher = lines;
  }
};

struct Amx {
  // Configures eight tile registers of 16 rows of 64 bytes for the calling thread. After leave() the system no longer
  // saves them.
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

  static void multiply(const TileGemm& of, Prefetcher& prefetcher) {
    const bool two = of.height > kSide;
    if (of.columns > kSide) return two ? Tiles<2, 2>::multiply(of, prefetcher) : Tiles<1, 2>::multiply(of, prefetcher);
    two ? Tiles<2, 1>::multiply(of, prefetcher) : Tiles<1, 1>::multiply(of, prefetcher);
  }
};
#undef EK_TARGET
#endif

// ---- the table

// Writes out[height][steps], padded with zeros to whole tile registers.
void pack_lhs_tile(const LhsSource& x, int64_t height, int64_t depth, float* out) {
  const int64_t terms = (depth + 2 * kSide - 1) / (2 * kSide) * (2 * kSide);
  auto* to = reinterpret_cast<c10::BFloat16*>(out);
  float scaled[2 * kBlockSteps];
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
  static EK_INLINE void run(const float* scales, const float* sums, const float* initial, float* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = __builtin_fmaf(scales[i], sums[i], initial ? initial[i] : 0.0f);
  }
};

// Computes a tile that has scales or is not a multiple of 16 in both sizes, by way of a buffer for its sums.
template <typename Machine>
void multiply_via_buffer(TileGemm product, const TileResult& y, Prefetcher& prefetcher) {
  alignas(64) float sums[kMaxTileRows * kMaxTileRows];
  const bool adds = y.initial && !y.scales;
  product.sums = sums;
  product.sums_stride = product.panel_stride;
  for (int64_t r = 0; r < product.height && adds; ++r)
    std::copy_n(y.initial + r * y.initial_stride, y.columns, sums + r * product.sums_stride);
  product.initial = adds ? sums : nullptr;
  product.initial_stride = product.sums_stride;
  Machine::multiply(product, prefetcher);
  for (int64_t r = 0; r < product.height; ++r) {
    const float* from = sums + r * product.sums_stride;
    float* to = y.y + r * y.stride;
    if (y.scales)
      vectorised<AddScaled>(y.scales, from, y.initial ? y.initial + r * y.initial_stride : nullptr, to, y.columns);
    else
      std::copy_n(from, y.columns, to);
  }
}

using TableOf = const GemmKernels& (*)();

template <TableOf kPairs, typename Machine>
struct TileKernels {
  static int64_t width() { return kPairs().panel_width; }

  static void pack_panel(const SubMatrix& w, bool transposed, float* out) {
    kPairs().pack_panel(w, transposed, out);
    const int64_t terms = transposed ? w.columns : w.rows, columns = transposed ? w.rows : w.columns;
    const int64_t steps = kPairs().steps(terms), whole = table().steps(terms);
    for (int64_t column = 0; column < columns && steps < whole; column += width(), out += kBlockSteps * width())
      std::fill(out + steps * width(), out + whole * width(), 0.0f);
  }
  static void multiply(int64_t height, int64_t steps, const float* tile, const float* panel, const TileResult& y,
                       Prefetcher& prefetcher) {
    const TileGemm product{.rows = tile,
                           .row_bytes = steps * static_cast<int64_t>(sizeof(float)),
                           .panel = panel,
                           .panel_stride = width(),
                           .height = height,
                           .columns = y.columns,
                           .steps = steps,
                           .initial = y.initial,
                           .initial_stride = y.initial_stride,
                           .sums = y.y,
                           .sums_stride = y.stride};
    const bool whole = height % kSide == 0 && y.columns % kSide == 0 && !y.scales;
    whole ? Machine::multiply(product, prefetcher) : multiply_via_buffer<Machine>(product, y, prefetcher);
  }
  static void multiply_unpacked(const UnpackedRows& unpacked, const PanelView& panel, float* sums, bool add,
                                Prefetcher& prefetcher) {
    const auto& w = unpacked.rows;
    TileGemm product{.rows = w.data,
                     .row_bytes = w.bytes(w.stride),
                     .panel = panel.steps,
                     .panel_stride = panel.width,
                     .height = w.rows,
                     .columns = panel.columns,
                     .steps = w.columns / 2,
                     .initial = add ? sums : nullptr,
                     .initial_stride = panel.width,
                     .sums = sums,
                     .sums_stride = panel.width};
    if (w.rows % kSide == 0) return Machine::multiply(product, prefetcher);
    alignas(64) char copies[kMaxTileRows * kBlockSteps * sizeof(float)];
    for (int64_t k = 0; k < w.columns; k += 2 * kBlockSteps, product.initial = sums) {
      const int64_t terms = std::min(2 * kBlockSteps, w.columns - k), bytes = w.bytes(terms);
      for (int64_t r = 0; r < w.rows; ++r)
        std::memcpy(copies + r * bytes, w.part(r, k, 1, terms).data, static_cast<size_t>(bytes));
      product.rows = copies;
      product.row_bytes = bytes;
      product.panel = panel.steps + k / 2 * panel.width;
      product.steps = terms / 2;
      Machine::multiply(product, prefetcher);
    }
  }

  static const GemmKernels& table() {
    static const GemmKernels made = [] {
      GemmKernels tiles = kPairs();
      tiles.tile_rows = kMaxTileRows;
      tiles.row_multiple = kSide;
      tiles.step_multiple = kSide;
      tiles.max_streamed_rows = 0;
      tiles.unpacked_rows = kMaxTileRows;
      tiles.unpacked_terms = std::numeric_limits<int64_t>::max();
      tiles.unpacked_vectors = kMaxColumns / kSide;
      tiles.unpacked_piece = 256;
      tiles.unpacked_bf16_rows = {1, std::numeric_limits<int64_t>::max()};
      tiles.enter = Machine::enter;
      tiles.leave = Machine::leave;
      tiles.pack_lhs_tile = pack_lhs_tile;
      tiles.pack_panel = pack_panel;
      tiles.multiply = multiply;
      tiles.multiply_and_pack = nullptr;
      tiles.stream = nullptr;
      tiles.multiply_unpacked = multiply_unpacked;
      return tiles;
    }();
    return made;
  }
};

template <Isa kIsa>
const GemmKernels& pairs() {
  return gemm_kernels(kIsa, Arithmetic::kBf16Pairs);
}

}  // namespace

const GemmKernels& gemm_kernels_tiles([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512 && has_bfloat16_tiles()) return TileKernels<pairs<Isa::kAvx512>, Amx>::table();
  if (isa == Isa::kAvx512) return TileKernels<pairs<Isa::kAvx512>, PortableTiles>::table();
  if (isa == Isa::kAvx2) return TileKernels<pairs<Isa::kAvx2>, PortableTiles>::table();
#endif
  return TileKernels<pairs<Isa::kBaseline>, PortableTiles>::table();
}

}  // namespace evenkeel::nn::kernels
