#include "fed/run/computed_speed.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "data/example.h"
#include "fed/round/round.h"
#include "fed/run/machine_speed.h"
#include "models/cost.h"

namespace evenkeel::fed {
namespace {

constexpr int64_t kLargeModel = int64_t{2} << 30;  // bytes; more would be read for minutes
constexpr int64_t kSampledRows = 32;               // of each task, for its mean length

/// Returns the sites with one input and one output each.
lora::Sites smallest(lora::Sites sites) {
  for (auto& [name, site] : sites) site.in = site.out = 1;
  return sites;
}

double mean_length(std::span<const data::Example> rows) {
  return rows.empty() ? 1 : static_cast<double>(data::tokens_in(rows)) / static_cast<double>(rows.size());
}

double mean_row_length(const Shards& shards) {
  double tokens = 0, rows = 0;
  for (const auto& shard : shards.examples) {
    tokens += mean_length(shard) * static_cast<double>(shard.size());
    rows += static_cast<double>(shard.size());
  }
  return rows > 0 ? tokens / rows : 1;
}

/// Returns the mean number of tokens of a scored row: of its prompt, or of the whole row where its likelihood is the
/// score. Generated tokens do not count, because an answer may end after the first.
double mean_scored_length(const scoring::PreparedTask& prepared) {
  if (prepared.task().scoring == data::Scoring::kNll) return mean_length(prepared.examples().examples);
  double tokens = 0;
  for (size_t row = 0; row < prepared.rows().size(); ++row) tokens += static_cast<double>(prepared.prompt(row).size());
  return tokens / static_cast<double>(std::max<size_t>(1, prepared.rows().size()));
}

/// Returns the multiply-adds of a forward pass over a sequence, per token.
models::ForwardCost cost_of_token(const Server& server, double length, int64_t top_k) {
  const models::CostShape shape{.tokens = 1, .length = std::llround(length), .top_k = top_k};
  return models::forward_cost(server.model, shape, server.sites, server.max_rank());
}

/// Returns the mean FLOPs of a row of this length over evaluate.budgets.
double flops_of_length(const Experiment& e, double length) {
  const auto& budgets = e.server.config->evaluate.budgets;
  double flops = 0;
  for (const double budget : budgets) {
    const int64_t top_k = active_experts(e.server.model, budget, "evaluate.budgets");
    flops += 2 * length * models::total(cost_of_token(e.server, length, top_k));
  }
  return flops / static_cast<double>(std::max<size_t>(1, budgets.size()));
}

/// Returns the mean over all rows of all tasks. The lengths are those of the first rows of each task.
double flops_of_scored_row(const Experiment& e) {
  const auto& context = e.fabric.context;
  const int64_t most = context.config->evaluate.limit;
  const int64_t limit = most > 0 ? std::min(kSampledRows, most) : kSampledRows;
  double flops = 0, rows = 0;
  for (const auto& [task, count] : test_row_counts(context.config)) {
    const auto prepared = context.test_rows({.task = task, .limit = limit});
    flops += count * flops_of_length(e, mean_scored_length(*prepared));
    rows += count;
  }
  return rows > 0 ? flops / rows : 0;
}

}  // namespace

bool is_too_large_to_measure(const std::filesystem::path& model_folder) {
  return models::weight_file_bytes(model_folder) > kLargeModel;
}

/// The points of an evaluation depend on how the method routes, and that on its state, which is made for sites of the
/// smallest size here.
RunWork counted_work(Experiment& dry_run) {
  auto& server = dry_run.server;
  auto sites = std::exchange(server.sites, smallest(server.sites));
  const auto ones = [&](const std::string& site, const methods::GradientSample&) {
    return at::ones(lora::stacked_shape(server.sites.at(site), 1, 1));
  };
  auto work = work_of(dry_run, server.method->initialize(server.view(0, ones)));
  server.sites = std::move(sites);
  return work;
}

RunFlops run_flops(const Experiment& dry_run) {
  const double length = mean_row_length(dry_run.fabric.shards);
  RunFlops flops{.per_trained_token = {}, .per_scored_row = flops_of_scored_row(dry_run)};
  for (const int64_t top_k : measured_top_ks(dry_run))
    flops.per_trained_token[top_k] =
        models::total(models::training_flops(cost_of_token(dry_run.server, length, top_k)));
  return flops;
}

double foreseen_flops(const RunWork& work, const RunFlops& flops) {
  double sum = work.scored_rows * flops.per_scored_row;
  for (const auto& [top_k, tokens] : work.tokens) sum += tokens * at_top_k(flops.per_trained_token, top_k);
  return sum;
}

RunSpeeds computed_speeds(const RunFlops& flops, double product_speed) {
  RunSpeeds speeds{.tokens_per_second = {}, .seconds_per_row = flops.per_scored_row / product_speed};
  for (const auto& [top_k, of_token] : flops.per_trained_token)
    speeds.tokens_per_second[top_k] = product_speed / of_token;
  return speeds;
}

}  // namespace evenkeel::fed
