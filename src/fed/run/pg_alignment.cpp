#include "fed/run/pg_alignment.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/plain/files.h"
#include "base/random/random.h"
#include "fed/config/arithmetic.h"
#include "fed/exchange/client.h"
#include "fed/run/make_experiment.h"
#include "fed/run/run_folder.h"
#include "fed/run/state_evaluation.h"

namespace evenkeel {
namespace {

constexpr std::array kAlignedFactors{&LoraFactors::a, &LoraFactors::b};

LocalSetup setup_at(const Experiment& e, const ServerState& state, double budget) {
  return Client(e.fabric.place, {}).prepare(e.server.scoring_task(state, {.budget = budget}, {}));
}

/// Calls `use` with packed batches of the run's size.
template <typename Use>
void for_batches(const Experiment& e, std::span<const Example> rows, Use&& use) {
  const auto size = static_cast<size_t>(e.server.config.train.batch_size);
  for (size_t first = 0; first < rows.size(); first += size) {
    std::vector<const Example*> batch;
    for (const auto& row : rows.subspan(first, std::min(size, rows.size() - first))) batch.push_back(&row);
    use(pack(batch));
  }
}

/// Layer -> which experts get no token at the smallest client's budget. [E] bool
TensorMap idle_experts(const Experiment& e, const ServerState& state, std::span<const Example> rows) {
  const auto weaker = [](const auto& x, const auto& y) { return x.budget < y.budget; };
  const auto weakest = std::min_element(e.server.clients.begin(), e.server.clients.end(), weaker);
  const auto setup = setup_at(e, state, weakest->budget);
  const c10::NoGradGuard no_grad;
  TensorMap counts, idle;
  for_batches(e, rows, [&](const PackedBatch& batch) {
    RoutingByLayer routing;
    auto options = e.fabric.place.forward(setup);
    options.routing = {&routing, 1};
    e.fabric.place.model->hidden(batch, options);
    for (const auto& [layer, stats] : routing)
      counts[layer] = counts.contains(layer) ? counts[layer] + stats.counts : stats.counts;
  });
  for (const auto& [layer, count_E] : counts) idle[layer] = count_E.cpu().eq(0);
  return idle;
}

/// The adapters of `state` with the gradient of the task loss over `rows`.
AdapterState with_gradients(const Experiment& e, const ServerState& state, std::span<const Example> rows,
                            AlignMode mode) {
  auto setup = setup_at(e, state, 1.0);
  if (mode == AlignMode::kDense) setup.router.top_k = e.server.model.num_experts;
  for (auto& [site, factors] : setup.adapters)
    for (const auto member : kAlignedFactors) {
      auto& tensor = factors.*member;
      tensor = tensor.detach().clone().requires_grad_(true);
      tensor.mutable_grad() = at::zeros_like(tensor);
    }
  bool any = false;
  for_batches(e, rows, [&](const PackedBatch& batch) {
    const auto loss = e.fabric.place.model->loss(batch, e.fabric.place.forward(setup));
    if (loss.count == 0) return;
    (loss.sum / static_cast<double>(loss.count)).backward();
    any = true;
  });
  EK_CHECK(any, kConfig, "the rows of an alignment have no targets");
  return setup.adapters;
}

/// Sums over experts, from which cosines come.
struct Sums {
  double product = 0, gradient = 0, pseudo = 0;
  std::vector<double> shuffled_products{};  ///< one per shuffle; empty where nothing can be shuffled

  void add(const Sums& other) {
    product += other.product;
    gradient += other.gradient;
    pseudo += other.pseudo;
    shuffled_products.resize(std::max(shuffled_products.size(), other.shuffled_products.size()));
    for (size_t i = 0; i < other.shuffled_products.size(); ++i) shuffled_products[i] += other.shuffled_products[i];
  }
  std::optional<double> cosine() const {
    if (gradient == 0 || pseudo == 0) return std::nullopt;
    return product / std::sqrt(gradient * pseudo);
  }
  std::optional<ShuffledCosine> shuffled() const {
    if (!cosine() || shuffled_products.empty()) return std::nullopt;
    const auto [least, most] = std::minmax_element(shuffled_products.begin(), shuffled_products.end());
    const double sum = std::accumulate(shuffled_products.begin(), shuffled_products.end(), 0.0);
    const double norms = std::sqrt(gradient * pseudo), count = static_cast<double>(shuffled_products.size());
    const double mean = std::clamp(sum / count, *least, *most);  // a sum of equal numbers rounds
    return ShuffledCosine{mean / norms, *least / norms, *most / norms};
  }
};

/// Over all adapters' tensors, float64: product_EE[i, j] of expert i's gradient with expert j's pseudo-gradient, and
/// both squared norms.
struct ExpertSums {
  at::Tensor product_EE, gradient_E, pseudo_E;

  void add(const at::Tensor& gradient, const at::Tensor& pseudo) {
    const auto gradient_EN = gradient.to(at::kDouble).flatten(1), pseudo_EN = pseudo.to(at::kDouble).flatten(1);
    const auto grow = [](at::Tensor& sum, const at::Tensor& part) { sum = sum.defined() ? sum + part : part; };
    grow(product_EE, gradient_EN.matmul(pseudo_EN.t()));
    grow(gradient_E, gradient_EN.square().sum(1));
    grow(pseudo_E, pseudo_EN.square().sum(1));
  }
};

ExpertSums expert_sums(const Experiment& e, const AdapterState& pseudo_gradients, const AdapterState& adapters,
                       const std::string& layer) {
  ExpertSums sums;
  for (const auto& [name, site] : e.server.sites) {
    if (site.experts == 0 || site.moe_layer != layer) continue;
    const auto sent = pseudo_gradients.find(name);
    EK_CHECK(sent != pseudo_gradients.end(), kConfig, "method ", e.server.config.method.name,
             " sends no pseudo-gradients: an alignment needs a run of ub-smoe with a round done and pg on");
    for (const auto member : kAlignedFactors) sums.add((adapters.at(name).*member).grad().cpu(), sent->second.*member);
  }
  EK_CHECK(sums.product_EE.defined(), kConfig,
           "lora.targets holds no linear of the experts: nothing has pseudo-gradients");
  return sums;
}

/// A permutation without a fixed point. REQUIRES count >= 2: about one permutation in three is one.
std::vector<int64_t> derangement(int64_t count, RandomStream& stream) {
  for (;;) {
    auto order = stream.permutation(count);
    bool moves_all = true;
    for (int64_t i = 0; i < count; ++i) moves_all = moves_all && order[static_cast<size_t>(i)] != i;
    if (moves_all) return order;
  }
}

/// \param product_CC  products of the compared experts
std::vector<double> shuffled_products(const at::Tensor& product_CC, RandomStream stream) {
  std::vector<double> sums;
  if (product_CC.size(0) < 2) return sums;
  const auto own = at::arange(product_CC.size(0), at::kLong);
  for (int64_t i = 0; i < ShuffledCosine::kShuffles; ++i) {
    const auto other = at::tensor(derangement(product_CC.size(0), stream), at::kLong);
    sums.push_back(product_CC.index({own, other}).sum().item<double>());
  }
  return sums;
}

Sums compare(const ExpertSums& experts, const at::Tensor& idle_E, RandomStream stream, PgAlignment& out) {
  const auto compared_C = idle_E.logical_and(experts.gradient_E.gt(0)).nonzero().flatten();
  const auto product_CC = experts.product_EE.index_select(0, compared_C).index_select(1, compared_C);
  const auto pseudo_C = experts.pseudo_E.index_select(0, compared_C);
  out.idle = idle_E.sum().item<int64_t>();
  out.compared = compared_C.numel();
  out.zero = pseudo_C.eq(0).sum().item<int64_t>();
  Sums sums{.product = product_CC.trace().item<double>(),
            .gradient = experts.gradient_E.index_select(0, compared_C).sum().item<double>(),
            .pseudo = pseudo_C.sum().item<double>(),
            .shuffled_products = shuffled_products(product_CC, std::move(stream))};
  out.cosine = sums.cosine();
  out.shuffled = sums.shuffled();
  return sums;
}

std::vector<Example> held_out_rows(const Experiment& e, int64_t limit) {
  std::vector<Example> rows;
  for (const auto& name : e.server.config.evaluate.tasks) {
    const auto from = e.server.config.data.rows(limit, e.server.seed());
    const auto set = test_rows(find_task(name, from), from);
    auto tokenized = tokenize_rows(set.rows, e.fabric.place.tokenizer,
                                   e.server.config.data.tokenize_options(e.server.model.end_of_text));
    std::move(tokenized.examples.begin(), tokenized.examples.end(), std::back_inserter(rows));
  }
  return rows;
}

}  // namespace

std::vector<PgAlignment> pg_alignment(const Experiment& e, const ServerState& state, std::span<const Example> rows,
                                      AlignMode mode) {
  EK_CHECK(e.server.model.num_experts > 0, kConfig, "the model is dense: pseudo-gradients are for idle experts");
  const auto idle = idle_experts(e, state, rows);
  const auto adapters = with_gradients(e, state, rows, mode);
  const auto pseudo_gradients = e.server.method->pseudo_gradients(state);
  std::vector<PgAlignment> all;
  PgAlignment together{.layer = "all"};
  Sums whole, shuffled;
  for (const auto& layer : e.server.model.moe_layers) {
    auto& one = all.emplace_back(PgAlignment{.layer = layer});
    RandomStream stream(e.server.seed(), "pg-alignment-shuffle", all.size());
    const auto sums =
        compare(expert_sums(e, pseudo_gradients, adapters, layer), idle.at(layer), std::move(stream), one);
    whole.add(sums);
    if (one.compared >= 2) shuffled.add(sums);
    together.idle += one.idle, together.compared += one.compared, together.zero += one.zero;
  }
  together.cosine = whole.cosine();
  together.shuffled = shuffled.shuffled();
  all.push_back(together);
  return all;
}

std::vector<PgAlignment> run_pg_alignment(const fs::path& folder, int64_t limit, AlignMode mode,
                                          const std::string& data, const std::string& device) {
  auto config = run_config(folder);
  if (!data.empty()) config.data.path = data;
  compute_on(config.model, device);
  auto e = make_experiment(std::move(config), Purpose::kEvaluate);
  const auto state = last_state(e, Checkpoint(folder / "checkpoint"));
  return pg_alignment(e, state, held_out_rows(e, limit), mode);
}

}  // namespace evenkeel
