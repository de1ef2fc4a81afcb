#include "nn/attention/rotary.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/plain/error.h"

namespace evenkeel::nn {
namespace {

/// Computes the frequencies of a scaling from the reciprocals of plain frequencies, [P / 2]. In Python, a number over a
/// tensor is the reciprocal of the tensor times the number.
class ScaledFrequencies {
 public:
  ScaledFrequencies(double theta, int64_t head_width, c10::Device device) : theta_(theta), width_(head_width) {
    const auto even = at::arange(0, head_width, 2, at::device(device).dtype(at::kLong)).to(at::kFloat);
    reciprocal_F_ = at::pow(theta, even / static_cast<double>(head_width));
  }

  at::Tensor operator()(std::monostate) const { return reciprocal_F_.reciprocal(); }
  at::Tensor operator()(const LinearRope& rope) const { return reciprocal_F_.reciprocal() / rope.factor; }

  at::Tensor operator()(const Llama3Rope& rope) const {
    const auto length = static_cast<double>(rope.trained_length);
    const auto plain_F = reciprocal_F_.reciprocal();
    const auto wavelength_F = plain_F.reciprocal() * (2 * std::numbers::pi);
    const auto is_low_F = wavelength_F.gt(length / rope.low_freq_factor),
               is_high_F = wavelength_F.lt(length / rope.high_freq_factor);
    const auto divided_F = at::where(is_low_F, plain_F / rope.factor, plain_F);
    const auto kept_F =
        (wavelength_F.reciprocal() * length - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
    const auto between_F = at::rsub(kept_F, 1) * divided_F / rope.factor + kept_F * divided_F;
    return at::where(is_low_F.logical_or(is_high_F), divided_F, between_F);
  }

  at::Tensor operator()(const YarnRope& rope) const {
    const auto divided_F = (reciprocal_F_ * rope.factor).reciprocal();
    const auto kept_F = at::rsub(ramp(rope), 1);
    return divided_F * at::rsub(kept_F, 1) + reciprocal_F_.reciprocal() * kept_F;
  }

  at::Tensor operator()(const LongRope& rope) const {
    EK_CHECK(static_cast<int64_t>(rope.factors.size()) == reciprocal_F_.size(0), kShape,
             "rotary positions: ", rope.factors.size(), " factors for ", reciprocal_F_.size(0), " frequencies");
    return (at::tensor(rope.factors, at::kDouble).to(reciprocal_F_.options()) * reciprocal_F_).reciprocal();
  }

 private:
  /// Returns the index, a real number, of the frequency that makes `turns` turns in the trained length.
  double index_of(double turns, const YarnRope& rope) const {
    const double ratio = static_cast<double>(rope.trained_length) / (turns * 2 * std::numbers::pi);
    return static_cast<double>(width_) * std::log(ratio) / (2 * std::log(theta_));
  }

  /// Returns 0 for unchanged frequencies, 1 for divided ones, and linear values in between, [P / 2].
  at::Tensor ramp(const YarnRope& rope) const {
    double low = index_of(rope.beta_fast, rope), high = index_of(rope.beta_slow, rope);
    if (rope.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, static_cast<double>(width_ - 1));
    if (low == high) high += 0.001;
    return ((at::arange(reciprocal_F_.size(0), reciprocal_F_.options()) - low) / (high - low)).clamp(0, 1);
  }

  double theta_;
  int64_t width_;
  at::Tensor reciprocal_F_;
};

}  // namespace

at::Tensor rotary_frequencies(const RopeSpec& spec, int64_t head_width, c10::Device device) {
  return std::visit(ScaledFrequencies(spec.theta, head_width, device), spec.scaling);
}

RotaryTable rotary_table(const at::Tensor& positions_T, int64_t head_width, const RopeSpec& spec) {
  const auto frequencies_F = rotary_frequencies(spec, head_width, positions_T.device());
  const auto angles = positions_T.to(at::kFloat).unsqueeze(1) * frequencies_F.unsqueeze(0);
  const auto both = at::cat({angles, angles}, 1);
  if (spec.attention_factor == 1) return {both.cos(), both.sin()};
  return {both.cos() * spec.attention_factor, both.sin() * spec.attention_factor};
}

}  // namespace evenkeel::nn
