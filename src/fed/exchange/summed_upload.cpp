#include "fed/exchange/summed_upload.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/plain/error.h"

namespace evenkeel::fed {
namespace {

constexpr int kReportScale = 20, kSumScale = 40;
// Magnitude of one summand in `counts`: a hundred of them stay below 2^62.
constexpr double kMostCount = 0x1p55;
constexpr int64_t kReportCounts = 6;  // numbers of a report before its metrics

int64_t product(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

int64_t scaled(double value, int scale) {
  return std::llrint(std::clamp(std::ldexp(value, scale), -kMostCount, kMostCount));
}

/// Writes the part `counts` number by number.
class CountWriter {
 public:
  explicit CountWriter(int64_t count) : counts_(at::zeros({count}, at::kLong)) {}
  void put(int64_t value) { counts_.mutable_data_ptr<int64_t>()[at_++] = value; }
  void put(double value, int scale) { put(scaled(value, scale)); }
  void put(const at::Tensor& values, int scale) {
    const auto flat = values.to(at::kDouble).contiguous();
    for (int64_t i = 0; i < flat.numel(); ++i) put(flat.const_data_ptr<double>()[i], scale);
  }
  at::Tensor take() {
    EK_CHECK(at_ == counts_.numel(), kInternal, "a summand of ", at_, " counts, its layout has ", counts_.numel());
    return counts_;
  }

 private:
  at::Tensor counts_;
  int64_t at_ = 0;
};

/// Reads it.
class CountReader {
 public:
  explicit CountReader(const at::Tensor& counts) : counts_(counts.contiguous()) {}
  int64_t take() { return counts_.const_data_ptr<int64_t>()[at_++]; }
  double take(int scale) { return std::ldexp(static_cast<double>(take()), -scale); }
  at::Tensor take(const std::vector<int64_t>& shape, int scale, double divisor) {
    const auto values = at::empty(shape, at::kDouble);
    for (int64_t i = 0; i < values.numel(); ++i) values.mutable_data_ptr<double>()[i] = take(scale) / divisor;
    return values;
  }

 private:
  at::Tensor counts_;
  int64_t at_ = 0;
};

/// Returns the number of choices of experts, as a mean over the layers.
double choices_of(const nn::RoutingByLayer& counts) {
  double sum = 0;
  for (const auto& [layer, stats] : counts) sum += static_cast<double>(stats.counts.sum().item<int64_t>());
  return counts.empty() ? 0 : sum / static_cast<double>(counts.size());
}

void put_report(CountWriter& out, const SummedLayout& layout, const train::LocalReport& report, double weight) {
  out.put(report.tokens);
  out.put(report.targets);
  out.put(report.loss_sum, kReportScale);
  out.put(report.first_loss, kReportScale);
  out.put(report.last_loss, kReportScale);
  out.put(choices_of(report.counts), kReportScale);
  for (const auto& name : layout.metrics) {
    const auto found = report.metrics.find(name);
    const double steps = found == report.metrics.end() ? 0 : static_cast<double>(report.steps);
    out.put(steps > 0 ? found->second * steps : 0, kReportScale);
    out.put(static_cast<int64_t>(steps));
  }
  for (const auto& layer : layout.layers) {
    const auto& stats = report.counts.at(layer);
    out.put(stats.counts.to(at::kDouble) * (weight / static_cast<double>(std::max<int64_t>(stats.tokens, 1))),
            kSumScale);
  }
}

}  // namespace

at::Tensor change_of(const SummedLayout::Factor& part, const methods::ClientUpdate& upload,
                     const lora::AdapterState& received) {
  const auto before = received.find(part.site);
  EK_CHECK(before != received.end() && (before->second.*part.factor).defined(), kInternal, "a summed upload changes ",
           part.site, ", which was not received");
  return upload.sent(part.site, part.factor).to(at::kFloat) - before->second.*part.factor;
}

int64_t SummedLayout::values() const {
  return std::accumulate(factors.begin(), factors.end(), int64_t{0},
                         [](int64_t sum, const Factor& factor) { return sum + factor.size; });
}

int64_t SummedLayout::counts() const {
  if (is_noisy) return 1;
  const auto own =
      std::accumulate(sums.begin(), sums.end(), int64_t{0}, [](int64_t all, const Sum& sum) { return all + sum.size; });
  const int64_t of_reports = reports ? kReportCounts + 2 * std::ssize(metrics) + std::ssize(layers) * experts : 0;
  return 1 + of_reports + own;
}

SummedLayout summed_layout(const SummedRun& run, const methods::ClientUpdate& upload) {
  SummedLayout layout{.reports = run.reports, .experts = run.experts, .is_noisy = run.adds_noise};
  for (const auto& [site, factors] : upload.payload.adapters)
    for (const auto& factor : lora::kFactors) {
      const auto& tensor = factors.*factor.tensor;
      if (!tensor.defined()) continue;
      auto shape = tensor.sizes().vec();
      const int64_t size = product(shape);
      layout.factors.push_back({site, run.sites.at(site).moe_layer, factor.tensor, std::move(shape), size});
    }
  if (run.reports) {
    layout.layers = run.moe_layers;
    for (const auto& metric : run.entry.metrics) layout.metrics.emplace_back(metric.name);
  }
  for (const auto& [name, part] : run.method.summands(upload, 0))
    layout.sums.push_back({name, part.sizes().vec(), part.numel()});
  return layout;
}

secure::RingVector summand_of(const SummedRun& run, const TrainedPart& trained, const SummedTerms& terms,
                              const crypto::Secret& rounding) {
  const auto layout = summed_layout(run, trained.upload);
  const auto format = terms.format();
  secure::RingVector result{.values = format.zeros(layout.values()), .counts = {}};
  int64_t at = 0, beyond = 0;
  for (const auto& part : layout.factors) {
    const auto weights_E =
        part.layer.empty() ? at::Tensor() : run.method.expert_weights(part.layer, trained.upload, terms.weight);
    const lora::Term term{.values = change_of(part, trained.upload, trained.received),
                          .weight = weights_E.defined() ? 1 : terms.weight,
                          .weights_E = weights_E};
    const auto stochastic = format.bits == 16 ? std::optional(secure::StochasticRounding{rounding, at}) : std::nullopt;
    beyond += secure::encode(term, format, stochastic, result.values.narrow(0, at, part.size));
    at += part.size;
  }
  CountWriter counts(layout.counts());
  counts.put(beyond);
  if (layout.reports) put_report(counts, layout, trained.report, terms.weight);
  for (const auto& [name, part] : run.method.summands(trained.upload, terms.weight)) counts.put(part, kSumScale);
  result.counts = counts.take();
  return result;
}

namespace {

void read_report(CountReader& counts, const SummedLayout& layout, double weights, SummedReport& report) {
  const auto clients = static_cast<double>(report.clients);
  report.tokens = counts.take();
  report.targets = counts.take();
  report.loss_sum = counts.take(kReportScale);
  report.first_loss = counts.take(kReportScale) / clients;
  report.last_loss = counts.take(kReportScale) / clients;
  report.experts_per_token = counts.take(kReportScale) / static_cast<double>(std::max<int64_t>(report.tokens, 1));
  for (const auto& name : layout.metrics) {
    const double metric = counts.take(kReportScale);
    if (const auto steps = static_cast<double>(counts.take()); steps > 0) report.metrics[name] = metric / steps;
  }
  for (const auto& layer : layout.layers) report.utilization[layer] = counts.take({layout.experts}, kSumScale, weights);
}

}  // namespace

SummedRound read_sum(const SummedLayout& layout, const secure::RingVector& sum, const secure::RingFormat& format,
                     double weights, int64_t clients) {
  SummedRound round;
  const auto values = secure::decode(sum.values, format, weights);
  int64_t at = 0;
  for (const auto& part : layout.factors) {
    round.totals.changes[part.site].*part.factor = values.narrow(0, at, part.size).view(part.shape);
    at += part.size;
  }
  CountReader counts(sum.counts);
  round.report = {.clients = clients, .values = layout.values(), .beyond = counts.take(), .told = layout.reports};
  if (layout.reports) read_report(counts, layout, weights, round.report);
  for (const auto& own : layout.sums) round.totals.sums[own.name] = counts.take(own.shape, kSumScale, weights);
  return round;
}

}  // namespace evenkeel::fed
