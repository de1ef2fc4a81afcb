#include "fed/run/gradient_bias.h"

#include <algorithm>
#include <map>

#include "base/plain/error.h"

namespace evenkeel::fed {
namespace {

using Batches = std::vector<std::span<const data::Example>>;
using SumsByLayer = std::map<std::string, train::BiasSums>;
using Gradients = train::ExpertGradientSums;

constexpr std::string_view kMedian = "median", kAllLayers = "all";

Batches cut_into_batches(std::span<const data::Example> rows, int64_t size) {
  Batches batches;
  const auto step = static_cast<size_t>(size);
  for (size_t first = 0; first < rows.size(); first += step)
    batches.push_back(rows.subspan(first, std::min(step, rows.size() - first)));
  return batches;
}

/// Divides the batches into blocks whose sizes differ by at most one.
std::vector<Batches> blocks_of(const Batches& batches) {
  const auto total = static_cast<int64_t>(batches.size()), count = std::min(total, kRowBlocks);
  std::vector<Batches> blocks;
  for (int64_t b = 0; b < count; ++b)
    blocks.emplace_back(batches.begin() + b * total / count, batches.begin() + (b + 1) * total / count);
  return blocks;
}

/// Returns the adapters and router options of each K, ascending. The last one is K_max.
std::map<int64_t, methods::LocalSetup> setups_by_k(const Experiment& e, const methods::ServerState& state) {
  auto budgets = e.server.config->evaluate.budgets;
  budgets.push_back(1.0);
  std::map<int64_t, methods::LocalSetup> setups;
  for (const double budget : budgets)
    setups.insert_or_assign(active_experts(e.server.model, budget, "evaluate.budgets"),
                            e.fabric.context.on_device(setup_at(e, state, budget)));
  return setups;
}

SumsByLayer sums_by_layer(const Gradients& full, const Gradients& sparse, double scale = 1.0) {
  SumsByLayer sums;
  for (const auto& [layer, gradients] : full) sums[layer] = train::bias_sums(gradients, sparse.at(layer), scale);
  return sums;
}

void add_to(SumsByLayer& sum, const SumsByLayer& other, int64_t sign = 1) {
  for (const auto& [layer, sums] : other) sum[layer].add(sums, sign);
}

/// What one K gives on some batches.
struct AtK {
  Gradients gradients{};     ///< of all batches together
  SumsByLayer batch_sums{};  ///< of single batches, added up
};
using ByK = std::map<int64_t, AtK>;

class Measurement {
 public:
  Measurement(const Experiment& e, const methods::ServerState& state) : e_(e), setups_(setups_by_k(e, state)) {}

  int64_t most() const { return setups_.rbegin()->first; }

  ByK measure(const Batches& batches) const {
    ByK result;
    for (const auto rows : batches) add_batch(rows, result);
    return result;
  }

 private:
  Gradients gradients(const methods::LocalSetup& setup, std::span<const data::Example> rows) const {
    return train::expert_gradients(*e_.fabric.context.model, e_.fabric.context.forward(setup), rows, e_.server.sites,
                                   setup.trainable);
  }

  void add_batch(std::span<const data::Example> rows, ByK& result) const {
    double targets = 0;
    for (const auto& row : rows) targets += static_cast<double>(row.targets());
    const auto full = gradients(setups_.rbegin()->second, rows);
    for (const auto& [top_k, setup] : setups_) {
      const auto sparse = top_k == most() ? full : gradients(setup, rows);
      train::add_to(result[top_k].gradients, sparse);
      add_to(result[top_k].batch_sums, sums_by_layer(full, sparse, 1 / targets));
    }
  }

  const Experiment& e_;
  std::map<int64_t, methods::LocalSetup> setups_;
};

using MeasuresByLayer = std::map<std::string, train::BiasMeasures>;

/// Returns the median, of an even number of values the mean of the two in the middle.
double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// Returns the median over layers of every measure; nothing for a measure that a layer does not have.
train::BiasMeasures median_over(const MeasuresByLayer& layers) {
  train::BiasMeasures median;
  for (const auto& measure : train::kBiasMeasures) {
    std::vector<double> values;
    for (const auto& [layer, one] : layers)
      if (const auto& value = one.*measure.value) values.push_back(*value);
    if (values.size() == layers.size()) median.*measure.value = median_of(std::move(values));
  }
  return median;
}

/// Returns the measures of each layer, their median, and those of all layers together.
MeasuresByLayer measures_by_layer(const SumsByLayer& sums) {
  MeasuresByLayer measures;
  train::BiasSums together;
  for (const auto& [layer, one] : sums) {
    measures[layer] = train::measures_of(one);
    together.add(one);
  }
  const auto median = median_over(measures);
  measures[std::string(kMedian)] = median;
  measures[std::string(kAllLayers)] = train::measures_of(together);
  return measures;
}

using Key = std::pair<GradientOf, int64_t>;  // and K
using Measures = std::map<Key, MeasuresByLayer>;

Measures measures_of(const ByK& by_k) {
  Measures all;
  const auto& full = by_k.rbegin()->second.gradients;
  for (const auto& [top_k, at] : by_k) {
    all[{GradientOf::kAllRows, top_k}] = measures_by_layer(sums_by_layer(full, at.gradients));
    all[{GradientOf::kBatch, top_k}] = measures_by_layer(at.batch_sums);
  }
  return all;
}

/// Returns what is left of `all` without `block`.
ByK without(const ByK& all, const ByK& block) {
  auto rest = all;
  for (auto& [top_k, at] : rest) {
    train::add_to(at.gradients, block.at(top_k).gradients, -1);
    add_to(at.batch_sums, block.at(top_k).batch_sums, -1);
  }
  return rest;
}

std::vector<GradientBias> in_order(const Measures& all, std::span<const Measures> left_out,
                                   std::vector<std::string> layers) {
  layers.insert(layers.end(), {std::string(kMedian), std::string(kAllLayers)});
  std::vector<GradientBias> result;
  for (const auto of : {GradientOf::kAllRows, GradientOf::kBatch})
    for (const auto& layer : layers)
      for (const auto& [key, by_layer] : all) {
        if (key.first != of || !by_layer.contains(layer)) continue;
        auto& one = result.emplace_back(GradientBias{of, layer, key.second, by_layer.at(layer)});
        for (const auto& rest : left_out) one.left_out.push_back(rest.at(key).at(layer));
      }
  return result;
}

}  // namespace

std::vector<GradientBias> gradient_bias(const Experiment& e, const methods::ServerState& state,
                                        std::span<const data::Example> rows) {
  EK_CHECK(e.server.model.num_experts > 0, kConfig, "the model is dense: its gradients have no bias by experts");
  const Measurement measurement(e, state);
  const auto batches = cut_into_batches(rows, e.server.config->train.batch_size);
  const auto all = measurement.measure(batches);
  std::vector<Measures> left_out;
  if (batches.size() >= 2)
    for (const auto& block : blocks_of(batches))
      left_out.push_back(measures_of(without(all, measurement.measure(block))));
  return in_order(measures_of(all), left_out, e.server.model.moe_layers);
}

std::vector<GradientBias> run_gradient_bias(const MeasuredRunOptions& options) {
  const auto run = open_measured_run(options);
  return gradient_bias(run.experiment, run.state, run.rows);
}

}  // namespace evenkeel::fed
