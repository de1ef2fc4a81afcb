#include "secure/ring.h"

#include <ATen/ATen.h>

#include <atomic>
#include <cmath>
#include <vector>

#include "base/plain/error.h"
#include "base/system/parallel.h"
#include "crypto/chacha20.h"

namespace evenkeel::secure {
namespace {

constexpr int64_t kValuesPerBlock = int64_t{1} << 15;  // a multiple of what one block of ChaCha20 holds

/// Calls do_it(T{}) with the signed integer of a ring.
template <typename DoIt>
auto in_ring(at::ScalarType type, const DoIt& do_it) {
  switch (type) {
    case at::kShort:
      return do_it(int16_t{});
    case at::kInt:
      return do_it(int32_t{});
    case at::kLong:
      return do_it(int64_t{});
    default:
      fail(kInternal, "a ring of ", c10::toString(type));
  }
}

/// Gives numbers in [0, 1) by index. One object serves one thread.
class Uniform {
 public:
  Uniform(const StochasticRounding& rounding, int64_t begin, int64_t end) {
    constexpr int64_t kPerBlock = crypto::ChaCha20::kBlock / sizeof(uint32_t);
    const int64_t from = rounding.first + begin, first_block = from / kPerBlock;
    first_ = first_block * kPerBlock - rounding.first;
    numbers_.resize(static_cast<size_t>(end - first_));
    crypto::ChaCha20(rounding.key, 0, static_cast<uint64_t>(first_block))
        .read({reinterpret_cast<uint8_t*>(numbers_.data()), numbers_.size() * sizeof(uint32_t)});
  }
  double at(int64_t i) const { return numbers_[static_cast<size_t>(i - first_)] * 0x1p-32; }

 private:
  int64_t first_ = 0;
  std::vector<uint32_t> numbers_;
};

/// The values of a term as float64, and the factor that takes each to the ring.
class Values {
 public:
  Values(const lora::Term& term, int exponent) : values_(term.values.to(at::kDouble).contiguous()) {
    const auto weights_E =
        term.weights_E.defined() ? term.weights_E.to(at::kDouble).contiguous() : at::ones({1}, at::kDouble);
    const int64_t groups = weights_E.numel();
    EK_CHECK(groups > 0 && values_.numel() % groups == 0, kShape, "a summand of ", values_.numel(), " values has ",
             groups, " weights");
    for (int64_t i = 0; i < groups; ++i)
      factors_.push_back(std::ldexp(term.weight * weights_E.const_data_ptr<double>()[i], exponent));
    of_ = std::max<int64_t>(values_.numel() / groups, 1);
  }
  int64_t size() const { return values_.numel(); }
  double at(int64_t i) const { return values_.const_data_ptr<double>()[i]; }
  double factor(int64_t i) const { return factors_[static_cast<size_t>(i / of_)]; }

 private:
  at::Tensor values_;
  std::vector<double> factors_;
  int64_t of_ = 1;
};

int64_t rounded(double value, const std::optional<Uniform>& uniform, int64_t i) {
  return static_cast<int64_t>(uniform ? std::floor(value + uniform->at(i)) : std::rint(value));
}

}  // namespace

RingFormat RingFormat::of(int64_t bits, double range, int64_t members) {
  EK_CHECK(bits == 16 || bits == 32 || bits == 64, kConfig, "secure_aggregation.bits is ", bits,
           ", allowed: 16, 32, 64");
  EK_CHECK(std::isfinite(range) && range > 0, kConfig, "secure_aggregation.range is ", range, ", allowed: above 0");
  EK_CHECK(members >= 1 && members <= kMostMembers, kConfig, "a round of secure aggregation has ", members,
           " clients, allowed: 1 to ", kMostMembers);
  const double most =
      bits == 64 ? 0x1p62 : std::ldexp(1.0, static_cast<int>(bits) - 1) - 1 - static_cast<double>(members);
  return {.bits = bits, .exponent = std::ilogb(most / range), .range = range};
}

at::ScalarType RingFormat::type() const { return bits == 16 ? at::kShort : bits == 32 ? at::kInt : at::kLong; }
at::Tensor RingFormat::zeros(int64_t count) const { return at::zeros({count}, type()); }

int64_t encode(const lora::Term& term, const RingFormat& format, const std::optional<StochasticRounding>& rounding,
               const at::Tensor& out_N) {
  const Values values(term, format.exponent);
  EK_CHECK(values.size() == out_N.numel() && out_N.is_contiguous() && out_N.scalar_type() == format.type(), kShape,
           "a summand of ", values.size(), " values for ", out_N.numel());
  std::atomic<int64_t> beyond{0};
  std::atomic<bool> finite{true};
  in_ring(format.type(), [&]<typename T>(T) {
    auto* out = out_N.mutable_data_ptr<T>();
    for_each_range(values.size(), kValuesPerBlock, [&](int64_t begin, int64_t end) {
      const auto uniform = rounding ? std::optional<Uniform>(std::in_place, *rounding, begin, end) : std::nullopt;
      int64_t clamped = 0;
      for (int64_t i = begin; i < end; ++i) {
        const double x = values.at(i);
        if (!std::isfinite(x)) {
          finite = false;
          continue;
        }
        clamped += std::abs(x) > format.range;
        const double y = std::clamp(x, -format.range, format.range) * values.factor(i);
        out[i] = static_cast<T>(rounded(y, uniform, i));
      }
      beyond += clamped;
    });
  });
  EK_CHECK(finite, kNumeric, "a summand holds a value that is not finite");
  return beyond;
}

void add_to(const at::Tensor& total_N, const at::Tensor& other_N) {
  EK_CHECK(total_N.sizes() == other_N.sizes() && total_N.scalar_type() == other_N.scalar_type(), kShape,
           "a masked sum of ", total_N.numel(), " values gets one of ", other_N.numel());
  const auto other = other_N.contiguous();
  in_ring(total_N.scalar_type(), [&]<typename T>(T) {
    auto* to = total_N.mutable_data_ptr<T>();
    const auto* from = other.template const_data_ptr<T>();
    at::parallel_for(0, total_N.numel(), kValuesPerBlock, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)  // unsigned: signed integers must not overflow
        to[i] = static_cast<T>(static_cast<uint64_t>(to[i]) + static_cast<uint64_t>(from[i]));
    });
  });
}

at::Tensor decode(const at::Tensor& total_N, const RingFormat& format, double divisor) {
  const auto result = at::empty({total_N.numel()}, at::kFloat);
  const auto total = total_N.contiguous();
  const double factor = std::ldexp(1.0, -format.exponent);
  in_ring(total_N.scalar_type(), [&]<typename T>(T) {
    const auto* from = total.template const_data_ptr<T>();
    auto* to = result.mutable_data_ptr<float>();
    at::parallel_for(0, total_N.numel(), kValuesPerBlock, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = static_cast<float>(static_cast<double>(from[i]) * factor / divisor);
    });
  });
  return result;
}

at::Tensor widened(const at::Tensor& ring_N) { return ring_N.to(at::kLong); }

at::Tensor narrowed(const at::Tensor& wide_N, at::ScalarType type) {
  const auto result = at::empty({wide_N.numel()}, type);
  in_ring(type, [&]<typename T>(T) {
    const auto* from = wide_N.const_data_ptr<int64_t>();
    auto* to = result.mutable_data_ptr<T>();
    at::parallel_for(0, wide_N.numel(), kValuesPerBlock, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = static_cast<T>(from[i]);
    });
  });
  return result;
}

}  // namespace evenkeel::secure
