#include "lora/fixed_point.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "base/plain/error.h"
#include "base/system/dispatch.h"
#include "base/system/huge_pages.h"
#include "base/system/parallel.h"
#include "lora/sum_in_registers.h"

namespace evenkeel::lora {
namespace {

constexpr int64_t kBlock = int64_t{1} << 11;  // elements: their sums and some ten terms stay in the first-level cache
constexpr int64_t kBlocksPerPiece = 64;  // processed in order by one thread, so that the next block can be prefetched
constexpr int64_t kCacheLine = 64;       // bytes
// Bytes from which a result is too large to be read from a cache afterwards.
constexpr size_t kMinNontemporalBytes = 4 << 20;
constexpr uint16_t kMagnitude16 = 0x7fff;
constexpr uint32_t kMagnitude32 = 0x7fffffff;
constexpr uint64_t kMagnitude64 = ~(uint64_t{1} << 63);

/// How values are stored, how they are converted to double, and how their magnitude is compared as an integer. The bits
/// of magnitudes have the order of the magnitudes; infinity and NaN are the largest.
struct AsDouble {
  using Stored = double;
  using Bits = uint64_t;
  static constexpr Bits kMask = kMagnitude64;
  static EK_INLINE double read(Bits x) { return std::bit_cast<double>(x); }
};
struct AsFloat {
  using Stored = float;
  using Bits = uint32_t;
  static constexpr Bits kMask = kMagnitude32;
  static EK_INLINE double read(Bits x) { return std::bit_cast<float>(x); }
};
struct AsBFloat16 {
  using Stored = c10::BFloat16;
  using Bits = uint16_t;
  static constexpr Bits kMask = kMagnitude16;
  static EK_INLINE double read(Bits x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }
};

template <typename As>
struct Largest {
  static EK_INLINE double run(const typename As::Bits* x, int64_t count) {
    typename As::Bits most = 0;
    for (int64_t i = 0; i < count; ++i) most = std::max<typename As::Bits>(most, x[i] & As::kMask);
    return As::read(most);
  }
};

/// Computes sum += round(x * factor), to nearest, ties to even. `first` overwrites instead of adding.
template <typename As>
struct Add {
  static EK_INLINE void run(const typename As::Bits* x, double factor, bool first, int64_t* sum, int64_t count) {
    if (first)
      for (int64_t i = 0; i < count; ++i) sum[i] = static_cast<int64_t>(std::rint(As::read(x[i]) * factor));
    else
      for (int64_t i = 0; i < count; ++i) sum[i] += static_cast<int64_t>(std::rint(As::read(x[i]) * factor));
  }
};

template <typename T>
struct Write {
  static EK_INLINE void run(const int64_t* sum, double factor, T* out, int64_t count) {
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<T>(static_cast<double>(sum[i]) * factor);
  }
};

/// Calls do_it(As{}) with the description of the storage type.
template <typename DoIt>
auto as_stored(at::ScalarType type, const DoIt& f) {
  switch (type) {
    case at::kDouble:
      return f(AsDouble{});
    case at::kBFloat16:
      return f(AsBFloat16{});
    default:
      return f(AsFloat{});
  }
}

/// One term of the sum. Each weight applies to `of` consecutive elements.
class Operand {
 public:
  Operand(const Term& term, size_t index, const std::string& who) : index_(index) {
    const auto type = term.values.scalar_type();
    const bool known = type == at::kDouble || type == at::kFloat || type == at::kBFloat16;
    values_ = (known ? term.values : term.values.to(at::kFloat)).contiguous();
    weights_ = {term.weight};
    if (term.weights_E.defined()) {
      const auto weights_E = term.weights_E.contiguous();
      EK_CHECK(values_.dim() > 1 && weights_E.numel() == values_.size(0) && weights_E.scalar_type() == at::kDouble,
               kShape, who, " is ", values_.sizes(), ", its weights ", weights_E.sizes());
      const std::span all(weights_E.const_data_ptr<double>(), static_cast<size_t>(weights_E.numel()));
      weights_.assign(all.begin(), all.end());
      for (double& weight : weights_) weight *= term.weight;
    }
    of_ = std::max<int64_t>(values_.numel() / static_cast<int64_t>(weights_.size()), 1);
    data_ = values_.const_data_ptr();
  }

  size_t index() const { return index_; }
  const at::Tensor& values() const { return values_; }

  /// Returns max |weight x| over [begin, end), or infinity if a value is not finite.
  double largest(int64_t begin, int64_t end) const {
    double most = 0;
    each_weight(begin, end, [&](int64_t first, int64_t last, double weight) {
      const double largest = as_stored(values_.scalar_type(), [&](auto as) {
        return vectorised<Largest<decltype(as)>>(at<decltype(as)>(first), last - first);
      });
      most = std::max(most, magnitude(largest, weight));
    });
    return most;
  }

  /// Returns whether [begin, end) can be an Addend.
  template <typename As>
  bool fits_registers(int64_t begin, int64_t end) const {
    return values_.scalar_type() == c10::CppTypeToScalarType<typename As::Stored>::value &&
           (end - begin) % kRegisterStep == 0 && begin / of_ == (end - 1) / of_;
  }
  template <typename As>
  Addend<typename As::Bits> addend(int64_t begin, double scale) const {
    return {at<As>(begin), weight_at(begin) * scale};
  }
  /// Returns largest() of the block that begins at `begin`, from the magnitude that sum_in_registers() found.
  template <typename As>
  double largest(int64_t begin, const Addend<typename As::Bits>& seen) const {
    return magnitude(As::read(seen.largest), weight_at(begin));
  }

  /// Prefetches the elements of [begin, end) that exist.
  void prefetch(int64_t begin, int64_t end) const {
    const auto* bytes = static_cast<const char*>(data_);
    const int64_t size = values_.element_size(), last = std::min(end, values_.numel()) * size;
    for (int64_t i = begin * size; i < last; i += kCacheLine) __builtin_prefetch(bytes + i);
  }

  /// Computes sum[i - begin] += round(2^exponent weight x[i]). `to_nothing` overwrites instead of adding.
  void add(int64_t begin, int64_t end, int exponent, bool overwrite, int64_t* sum) const {
    each_weight(begin, end, [&](int64_t first, int64_t last, double weight) {
      as_stored(values_.scalar_type(), [&](auto as) {
        vectorised<Add<decltype(as)>>(at<decltype(as)>(first), std::ldexp(weight, exponent), overwrite,
                                      sum + (first - begin), last - first);
      });
    });
  }

 private:
  static double magnitude(double largest, double weight) {
    const double weighted = largest * std::abs(weight);  // NaN for an infinity with weight 0
    return std::isfinite(weighted) ? weighted : HUGE_VAL;
  }
  double weight_at(int64_t i) const { return weights_[static_cast<size_t>(i / of_)]; }
  template <typename As>
  const typename As::Bits* at(int64_t i) const {
    return static_cast<const typename As::Bits*>(data_) + i;
  }
  template <typename See>
  void each_weight(int64_t begin, int64_t end, const See& see) const {
    for (int64_t first = begin; first < end;) {
      const int64_t group = first / of_, last = std::min(end, (group + 1) * of_);
      see(first, last, weights_[static_cast<size_t>(group)]);
      first = last;
    }
  }

  at::Tensor values_;
  const void* data_ = nullptr;
  std::vector<double> weights_;
  int64_t of_ = 1;
  size_t index_;
};

/// The values that all processes must agree on before anything is added: shape and type of the sum, and the largest
/// magnitude.
class Header {
 public:
  static constexpr size_t kAxes = 6;

  static Header of(const at::Tensor& values, const std::string& who) {
    EK_CHECK(values.is_floating_point() && values.dim() <= static_cast<int64_t>(kAxes), kShape, who, " is ",
             values.sizes(), " of ", c10::toString(values.scalar_type()), ", allowed: numbers, on up to ", kAxes,
             " axes");
    Header header;
    header.fields_[kType] = values.scalar_type() == at::kDouble ? 2 : 1;
    header.fields_[kDimensions] = values.dim();
    std::copy(values.sizes().begin(), values.sizes().end(), header.fields_.begin() + kSizes);
    return header;
  }

  bool empty() const { return fields_[kType] == 0; }
  bool fits(const Header& other) const { return std::equal(begin() + kType, end(), other.begin() + kType); }
  std::span<int64_t> fields() { return fields_; }

  void set_magnitude(double magnitude) { fields_[kMagnitude] = std::bit_cast<int64_t>(magnitude); }
  double magnitude() const { return std::bit_cast<double>(fields_[kMagnitude]); }
  at::ScalarType type() const { return fields_[kType] == 2 ? at::kDouble : at::kFloat; }
  at::IntArrayRef sizes() const { return {begin() + kSizes, static_cast<size_t>(fields_[kDimensions])}; }

 private:
  static constexpr size_t kMagnitude = 0, kType = 1, kDimensions = 2, kSizes = 3;
  const int64_t* begin() const { return fields_.data(); }
  const int64_t* end() const { return fields_.data() + fields_.size(); }

  std::array<int64_t, kSizes + kAxes> fields_{};
};

std::string who_of(const Terms& terms, size_t i) { return terms.who ? terms.who(i) : concat("term ", i, " of a sum"); }

/// \param header  set to the common shape and type of the terms, without a magnitude
std::vector<Operand> operands_of(const Terms& terms, Header& header) {
  std::vector<Operand> operands;
  for (size_t i = 0; i < terms.here; ++i) {
    const auto term = terms.at(i);
    if (!term.values.defined()) continue;
    const auto term_header = Header::of(term.values, who_of(terms, i));
    EK_CHECK(header.empty() || term_header.fits(header), kShape, who_of(terms, i), " is ", term_header.sizes(),
             ", others are ", header.sizes());
    header = term_header;
    operands.emplace_back(term, i, who_of(terms, i));
  }
  return operands;
}

/// Returns the exponent e of the scale 2^e. Above 2^960 a factor would overflow; no sum needs such a scale.
int exponent_of(double magnitude, size_t terms) {
  int above = 0;  // magnitude < 2^above
  std::frexp(magnitude, &above);
  return std::min(62 - above - static_cast<int>(std::bit_width(std::max<size_t>(terms, 1) - 1)), 960);
}

at::Tensor uninitialised(at::IntArrayRef sizes, at::ScalarType type) {
  auto values = at::empty(sizes, type);
  wish_huge_pages(values.mutable_data_ptr(), values.nbytes());
  return values;
}

/// The destination of sums: the final values, or int64 sums to which other processes add theirs.
struct Output {
  at::Tensor values;  ///< of the header's type, or int64 for partial sums

  void write(int64_t begin, int64_t end, const int64_t* sum, int exponent) const {
    const double factor = std::ldexp(1.0, -exponent);
    if (values.scalar_type() == at::kLong)
      std::copy(sum, sum + (end - begin), values.mutable_data_ptr<int64_t>() + begin);
    else if (values.scalar_type() == at::kDouble)
      vectorised<Write<double>>(sum, factor, values.mutable_data_ptr<double>() + begin, end - begin);
    else
      write_floats(sum, factor, values.mutable_data_ptr<float>() + begin, end - begin);
  }

 private:
  void write_floats(const int64_t* sum, double factor, float* out, int64_t count) const {
    const bool large = values.nbytes() >= kMinNontemporalBytes;
    if (large && has_sum_in_registers() && is_whole_lines(out, count))
      store_nontemporal({sum, static_cast<size_t>(count)}, factor, out);
    else
      vectorised<Write<float>>(sum, factor, out, count);
  }
};

/// Sums block by block. The scale depends on the largest magnitude of all blocks, which is known only at the end. Each
/// block is first summed with the scale known so far, which is nearly always final, and is summed again otherwise.
class BlockedSum {
 public:
  BlockedSum(std::vector<Operand> operands, size_t global_term_count, Output output)
      : operands_(std::move(operands)),
        global_term_count_(global_term_count),
        output_(std::move(output)),
        not_finite_(operands_.size()),
        exponents_(static_cast<size_t>((output_.values.numel() + kBlock - 1) / kBlock), kNone) {}

  /// Sums all blocks with provisional scales. \return the largest magnitude. \throws kNumeric as fixed_point_sum()
  double sum_as_seen(const Terms& terms) {
    raise(largest_of_some());
    each_block([&](size_t block, int64_t begin, int64_t end) {
      if (sum_in_one_pass(block, begin, end)) return;
      const double seen = see([&](size_t i) { return operands_[i].largest(begin, end); });
      if (std::isfinite(seen)) sum(block, begin, end, exponent_of(seen, global_term_count_));
    });
    for (size_t i = 0; i < operands_.size(); ++i)
      EK_CHECK(!not_finite_[i], kNumeric, who_of(terms, operands_[i].index()), " holds a value that is not finite");
    return magnitude_;
  }

  /// Sums the blocks again that used another scale.
  void finish(int exponent) {
    if (std::all_of(exponents_.begin(), exponents_.end(), [&](int own) { return own == exponent; })) return;
    each_block([&](size_t block, int64_t begin, int64_t end) {
      if (exponents_[block] != exponent) sum(block, begin, end, exponent);
    });
  }

 private:
  static constexpr int kNone = std::numeric_limits<int>::min();
  using Sums = std::array<int64_t, kBlock>;

  template <typename Work>
  void each_block(const Work& work) const {
    for_each_range(static_cast<int64_t>(exponents_.size()), kBlocksPerPiece, [&](int64_t first, int64_t last) {
      for (int64_t block = first; block < last; ++block)
        work(static_cast<size_t>(block), block * kBlock, std::min((block + 1) * kBlock, output_.values.numel()));
    });
  }

  /// Returns the largest magnitude in a sample of one block in kBlocksAPiece. The resulting scale rarely changes later.
  double largest_of_some() const {
    double largest = 0;
    for (int64_t begin = 0; begin < output_.values.numel(); begin += kBlocksPerPiece * kBlock)
      for (const auto& operand : operands_)
        largest = std::max(largest, operand.largest(begin, std::min(begin + kBlock / 4, output_.values.numel())));
    return largest;
  }

  /// Raises the largest magnitude. \return the largest magnitude that any thread has seen
  double raise(double magnitude) {
    double known = magnitude_;
    while (known < magnitude && !magnitude_.compare_exchange_weak(known, magnitude)) {
    }
    return std::max(known, magnitude);
  }

  /// Raises the largest magnitude to those of all operands in a block. \return as raise()
  template <typename LargestOf>
  double see(const LargestOf& largest_of) {
    double largest = 0;
    for (size_t i = 0; i < operands_.size(); ++i) {
      const double own = largest_of(i);
      if (!std::isfinite(own)) not_finite_[i] = true;
      largest = std::max(largest, own);
    }
    return raise(largest);
  }

  /// Sums a block in one pass with the scale known so far. Returns false if the block has to be summed in another way,
  /// because its types are not supported or it needs another scale.
  bool sum_in_one_pass(size_t block, int64_t begin, int64_t end) {
    return all_fit_registers<AsBFloat16>(begin, end) ? sum_in_one_pass_as<AsBFloat16>(block, begin, end)
           : all_fit_registers<AsFloat>(begin, end)  ? sum_in_one_pass_as<AsFloat>(block, begin, end)
                                                     : false;
  }

  template <typename As>
  bool sum_in_one_pass_as(size_t block, int64_t begin, int64_t end) {
    const double known = magnitude_;
    if (known == 0 || !std::isfinite(known)) return false;
    const int exponent = exponent_of(known, global_term_count_);
    Sums sums;
    const auto addends = sum_in_registers_as<As>(begin, end, exponent, sums);
    const double seen = see([&](size_t i) { return operands_[i].template largest<As>(begin, addends[i]); });
    if (!std::isfinite(seen) || exponent_of(seen, global_term_count_) != exponent) return false;
    output_.write(begin, end, sums.data(), exponent);
    exponents_[block] = exponent;
    return true;
  }

  template <typename As>
  bool all_fit_registers(int64_t begin, int64_t end) const {
    return has_sum_in_registers() && std::all_of(operands_.begin(), operands_.end(), [&](const Operand& operand) {
             return operand.fits_registers<As>(begin, end);
           });
  }

  template <typename As>
  std::vector<Addend<typename As::Bits>> sum_in_registers_as(int64_t begin, int64_t end, int exponent,
                                                             Sums& sums) const {
    std::vector<Addend<typename As::Bits>> addends;
    addends.reserve(operands_.size());
    for (const auto& operand : operands_)
      addends.push_back(operand.template addend<As>(begin, std::ldexp(1.0, exponent)));
    sum_in_registers(addends, std::span(sums).first(static_cast<size_t>(end - begin)));
    return addends;
  }

  void sum_term_by_term(int64_t begin, int64_t end, int exponent, Sums& sums) const {
    for (size_t i = 0; i < operands_.size(); ++i) {
      operands_[i].prefetch(end, end + kBlock);
      operands_[i].add(begin, end, exponent, i == 0, sums.data());
    }
  }

  void sum(size_t block, int64_t begin, int64_t end, int exponent) {
    Sums sums;
    if (all_fit_registers<AsBFloat16>(begin, end))
      sum_in_registers_as<AsBFloat16>(begin, end, exponent, sums);
    else if (all_fit_registers<AsFloat>(begin, end))
      sum_in_registers_as<AsFloat>(begin, end, exponent, sums);
    else
      sum_term_by_term(begin, end, exponent, sums);
    output_.write(begin, end, sums.data(), exponent);
    exponents_[block] = exponent;
  }

  std::vector<Operand> operands_;
  size_t global_term_count_;
  Output output_;
  std::vector<std::atomic<bool>> not_finite_;  // per operand
  std::vector<int> exponents_;                 // the scale with which each block was summed
  std::atomic<double> magnitude_{0};
};

/// Computes a sum whose terms are all in this process.
at::Tensor sum_in_process(const Terms& terms) {
  Header header;
  auto operands = operands_of(terms, header);
  if (header.empty()) return {};
  const Output out{uninitialised(header.sizes(), header.type())};
  BlockedSum sum(std::move(operands), terms.global_term_count, out);
  sum.finish(exponent_of(sum.sum_as_seen(terms), terms.global_term_count));
  return out.values;
}

at::Tensor sum_with(const Terms& terms, const Reduction& others) {
  Header here;
  auto operands = operands_of(terms, here);
  const bool any = !here.empty();
  const Output integers{any ? at::empty(here.sizes(), at::kLong) : at::empty({0}, at::kLong)};
  BlockedSum sum(std::move(operands), terms.global_term_count, integers);
  if (any) here.set_magnitude(sum.sum_as_seen(terms));
  Header all = here;
  others.max(all.fields());
  EK_CHECK(!any || here.fits(all), kShape, "terms of a sum are ", here.sizes(), " here, others are ", all.sizes());
  if (all.empty()) return {};
  if (all.magnitude() == 0) return at::zeros(all.sizes(), all.type());
  const int exponent = exponent_of(all.magnitude(), terms.global_term_count);
  if (any) sum.finish(exponent);
  const auto total = any ? integers.values : at::zeros(all.sizes(), at::kLong);
  others.sum({total.mutable_data_ptr<int64_t>(), static_cast<size_t>(total.numel())});
  const Output out{at::empty(all.sizes(), all.type())};
  at::parallel_for(0, total.numel(), kBlock * kBlocksPerPiece, [&](int64_t begin, int64_t end) {
    out.write(begin, end, total.const_data_ptr<int64_t>() + begin, exponent);
  });
  return out.values;
}

}  // namespace

at::Tensor fixed_point_sum(const Terms& terms) { return sum_in_process(terms); }
at::Tensor fixed_point_sum(const Terms& terms, const Reduction& others) { return sum_with(terms, others); }

at::Tensor weighted_mean(std::span<const at::Tensor> parts, std::span<const double> weights) {
  EK_CHECK(!parts.empty() && parts.size() == weights.size(), kShape, "weighted_mean: ", parts.size(), " parts and ",
           weights.size(), " weights");
  return fixed_point_sum({.here = parts.size(), .global_term_count = parts.size(), .at = [&](size_t i) {
                            return Term{parts[i], weights[i]};
                          }});
}

}  // namespace evenkeel::lora
