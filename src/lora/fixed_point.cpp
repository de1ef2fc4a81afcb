#include "lora/fixed_point.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace evenkeel {
namespace {

constexpr int64_t kGrain = int64_t{1} << 15;

/// The magnitude of a value as bits, which are in the order of the magnitudes; what is not finite comes last.
uint64_t magnitude_bits(double x) { return std::bit_cast<uint64_t>(x) & ~(uint64_t{1} << 63); }
uint32_t magnitude_bits(float x) { return std::bit_cast<uint32_t>(x) & 0x7fffffffU; }
double magnitude_of(uint64_t bits) { return std::bit_cast<double>(bits); }
double magnitude_of(uint32_t bits) { return std::bit_cast<float>(bits); }

/// Values as they are in memory, and as they are computed with.
struct AsDouble {
  using Stored = double;
  static double read(Stored x) { return x; }
};
struct AsFloat {
  using Stored = float;
  static float read(Stored x) { return x; }
};
struct AsBFloat16 {
  using Stored = c10::BFloat16;
  static float read(Stored x) { return std::bit_cast<float>(static_cast<uint32_t>(x.x) << 16); }
};

template <typename As>
double largest(const at::Tensor& values) {
  const auto* x = values.const_data_ptr<typename As::Stored>();
  using Bits = decltype(magnitude_bits(As::read(*x)));
  const auto of_range = [x](int64_t begin, int64_t end, Bits most) {
    for (int64_t i = begin; i < end; ++i) most = std::max(most, magnitude_bits(As::read(x[i])));
    return most;
  };
  const auto bits = at::parallel_reduce(0, values.numel(), kGrain, Bits{0}, of_range,
                                        [](Bits one, Bits other) { return std::max(one, other); });
  return magnitude_of(bits);
}

/// sum += round(values * factor), or without what was there.
template <typename As>
void add(const at::Tensor& values, double factor, bool first, int64_t* sum) {
  const auto* x = values.const_data_ptr<typename As::Stored>();
  at::parallel_for(0, values.numel(), kGrain, [&](int64_t begin, int64_t end) {
    if (first)
      for (int64_t i = begin; i < end; ++i) sum[i] = std::llrint(static_cast<double>(As::read(x[i])) * factor);
    else
      for (int64_t i = begin; i < end; ++i) sum[i] += std::llrint(static_cast<double>(As::read(x[i])) * factor);
  });
}

template <typename T>
void write(const at::Tensor& sum, double factor, T* out) {
  const auto* in = sum.const_data_ptr<int64_t>();
  at::parallel_for(0, sum.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = static_cast<T>(static_cast<double>(in[i]) * factor);
  });
}

double largest_of(const at::Tensor& values) {
  switch (values.scalar_type()) {
    case at::kDouble:
      return largest<AsDouble>(values);
    case at::kBFloat16:
      return largest<AsBFloat16>(values);
    default:
      return largest<AsFloat>(values);
  }
}

void add_to(const at::Tensor& values, double factor, bool first, int64_t* sum) {
  switch (values.scalar_type()) {
    case at::kDouble:
      return add<AsDouble>(values, factor, first, sum);
    case at::kBFloat16:
      return add<AsBFloat16>(values, factor, first, sum);
    default:
      return add<AsFloat>(values, factor, first, sum);
  }
}

/// What everybody must agree on before anything is added: shape and type of the sum, and the largest magnitude.
class Header {
 public:
  static constexpr size_t kAxes = 6;

  static Header of(const Term& term, const std::string& who) {
    const auto& values = term.values;
    EK_CHECK(values.is_floating_point() && values.dim() <= static_cast<int64_t>(kAxes), kShape, who, " is ",
             values.sizes(), " of ", c10::toString(values.scalar_type()), ", allowed: numbers, on up to ", kAxes,
             " axes");
    const double magnitude = largest_of(values) * std::abs(term.weight);
    EK_CHECK(std::isfinite(magnitude), kNumeric, who, " holds a value that is not finite");
    Header header;
    header.fields_[kMagnitude] = std::bit_cast<int64_t>(magnitude);
    header.fields_[kType] = values.scalar_type() == at::kDouble ? 2 : 1;
    header.fields_[kDimensions] = values.dim();
    std::copy(values.sizes().begin(), values.sizes().end(), header.fields_.begin() + kSizes);
    return header;
  }

  bool empty() const { return fields_[kType] == 0; }
  bool fits(const Header& other) const { return std::equal(begin() + kType, end(), other.begin() + kType); }
  void gain(const Header& other) {
    for (size_t i = 0; i < fields_.size(); ++i) fields_[i] = std::max(fields_[i], other.fields_[i]);
  }
  std::span<int64_t> fields() { return fields_; }

  double magnitude() const { return std::bit_cast<double>(fields_[kMagnitude]); }
  at::ScalarType type() const { return fields_[kType] == 2 ? at::kDouble : at::kFloat; }
  at::IntArrayRef sizes() const { return {begin() + kSizes, static_cast<size_t>(fields_[kDimensions])}; }

 private:
  static constexpr size_t kMagnitude = 0, kType = 1, kDimensions = 2, kSizes = 3;
  const int64_t* begin() const { return fields_.data(); }
  const int64_t* end() const { return fields_.data() + fields_.size(); }

  std::array<int64_t, kSizes + kAxes> fields_{};
};

Term term_at(const Terms& terms, size_t i) {
  auto term = terms.at(i);
  if (!term.values.defined()) return term;
  const auto type = term.values.scalar_type();
  const bool known = type == at::kDouble || type == at::kFloat || type == at::kBFloat16;
  term.values = (known ? term.values : term.values.to(at::kFloat)).contiguous();
  return term;
}

std::string who_of(const Terms& terms, size_t i) { return terms.who ? terms.who(i) : concat("term ", i, " of a sum"); }

Header header_of(const Terms& terms, const Reduction& others) {
  Header all;
  for (size_t i = 0; i < terms.here; ++i) {
    const auto term = term_at(terms, i);
    if (!term.values.defined()) continue;
    const auto own = Header::of(term, who_of(terms, i));
    EK_CHECK(all.empty() || own.fits(all), kShape, who_of(terms, i), " is ", own.sizes(), ", others are ", all.sizes());
    all.gain(own);
  }
  const Header here = all;
  others.max(all.fields());
  EK_CHECK(here.empty() || here.fits(all), kShape, "terms of a sum are ", here.sizes(), " here, others are ",
           all.sizes());
  return all;
}

/// The e of the scale. Beyond 2^960 a factor would overflow; nothing is that small.
int exponent_of(double magnitude, size_t terms) {
  int above = 0;  // magnitude < 2^above
  std::frexp(magnitude, &above);
  return std::min(62 - above - static_cast<int>(std::bit_width(std::max<size_t>(terms, 1) - 1)), 960);
}

at::Tensor written(const at::Tensor& sum, double factor, at::ScalarType type) {
  auto out = at::empty(sum.sizes(), type);
  if (type == at::kDouble)
    write(sum, factor, out.mutable_data_ptr<double>());
  else
    write(sum, factor, out.mutable_data_ptr<float>());
  return out;
}

}  // namespace

at::Tensor fixed_point_sum(const Terms& terms, const Reduction& others) {
  const auto header = header_of(terms, others);
  if (header.empty()) return {};
  if (header.magnitude() == 0) return at::zeros(header.sizes(), header.type());
  const int exponent = exponent_of(header.magnitude(), terms.everywhere);
  at::Tensor sum;
  for (size_t i = 0; i < terms.here; ++i) {
    const auto term = term_at(terms, i);
    if (!term.values.defined()) continue;
    const bool first = !sum.defined();
    if (first) sum = at::empty(header.sizes(), at::kLong);
    add_to(term.values, std::ldexp(term.weight, exponent), first, sum.mutable_data_ptr<int64_t>());
  }
  if (!sum.defined()) sum = at::zeros(header.sizes(), at::kLong);
  others.sum({sum.mutable_data_ptr<int64_t>(), static_cast<size_t>(sum.numel())});
  return written(sum, std::ldexp(1.0, -exponent), header.type());
}

at::Tensor weighted_mean(std::span<const at::Tensor> parts, std::span<const double> weights) {
  EK_CHECK(!parts.empty() && parts.size() == weights.size(), kShape, "weighted_mean: ", parts.size(), " parts and ",
           weights.size(), " weights");
  return fixed_point_sum({.here = parts.size(), .everywhere = parts.size(), .at = [&](size_t i) {
                            return Term{parts[i], weights[i]};
                          }});
}

}  // namespace evenkeel
