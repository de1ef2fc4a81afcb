#include "train/local_training.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "base/plain/clock.h"
#include "base/random/random.h"
#include "data/padding.h"
#include "lora/equal_factors.h"
#include "nn/dense/gradients.h"
#include "nn/engines/engine_of.h"
#include "train/distillation.h"
#include "train/gradient_norm.h"
#include "train/make_optimizer.h"
#include "train/private_gradient.h"

namespace evenkeel::train {
namespace {

using Clock = std::chrono::steady_clock;

int64_t tokens_of(const ExampleRows& rows) {
  int64_t tokens = 0;
  for (const auto* row : rows) tokens += static_cast<int64_t>(row->ids.size());
  return tokens;
}

int64_t targets_of(std::span<const ExampleRows> micro_batches) {
  int64_t targets = 0;
  for (const auto& rows : micro_batches)
    for (const auto* row : rows) targets += row->targets();
  return targets;
}

/// Draws the rows of a shard in random order. After the last row it starts a new order.
class RowOrder {
 public:
  RowOrder(std::span<const data::Example> shard, const methods::ClientView& view)
      : shard_(shard),
        stream_(view.seed, "batches", static_cast<uint64_t>(view.round), static_cast<uint64_t>(view.client.id)) {}

  ExampleRows take(int64_t rows) {
    ExampleRows batch;
    for (int64_t i = 0; i < rows; ++i) batch.push_back(&shard_[static_cast<size_t>(next())]);
    return batch;
  }

  const data::Example* row(int64_t index) const { return &shard_[static_cast<size_t>(index)]; }
  int64_t size() const { return static_cast<int64_t>(shard_.size()); }

 private:
  int64_t next() {
    if (used_ == order_.size()) {
      order_ = stream_.permutation(static_cast<int64_t>(shard_.size()));
      used_ = 0;
    }
    return order_[used_++];
  }

  std::span<const data::Example> shard_;
  RandomStream stream_;
  std::vector<int64_t> order_;
  size_t used_ = 0;
};

/// Gives each of several tensors of equal sizes, if any, a gradient of zeros. The gradients lie in one stack, so that a
/// term over all of them is added by one operator (nn/dense/stacked.h).
void give_gradients(const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) return;
  const auto zeros = nn::stacked_zeros(tensors);
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i].mutable_grad() = zeros[i];
}

/// Returns a copy of a tensor's gradient, which is zero afterwards. Undefined: there is none.
at::Tensor taken_gradient(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.grad().defined()) return {};
  const auto copy = tensor.grad().clone();
  tensor.mutable_grad().zero_();
  return copy;
}

/// Lists the trained tensors, which are leaves with zeroed gradients, and the mixture layer of each stacked expert
/// tensor.
struct Trained {
  std::vector<at::Tensor> tensors;
  std::vector<std::string> moe_layers;  ///< one per tensor, empty when not stacked

  void add(const at::Tensor& tensor, const std::string& moe_layer) {
    tensor.requires_grad_(true);
    tensors.push_back(tensor);
    moe_layers.push_back(moe_layer);
  }
};

Trained make_trained(methods::LocalSetup& setup, const lora::Sites& sites) {
  const bool a = setup.trainable == methods::Trainable::kAB, core = setup.trainable == methods::Trainable::kCore;
  Trained trained;
  for (const auto& [name, factors] : setup.adapters) {
    const auto& site = sites.at(name);
    const std::string layer = site.experts > 0 ? site.moe_layer : std::string();
    if (a) trained.add(factors.a, layer);
    if (!core) trained.add(factors.b, layer);
    if (core) trained.add(factors.core, layer);
  }
  for (const auto& [name, tensor] : setup.extra_trainables) {
    trained.add(tensor, {});
    give_gradients({tensor});
  }
  for (const auto& group : lora::equal_factors(setup.adapters)) {
    if (a) give_gradients(group.a);
    if (!core) give_gradients(group.b);
    if (core) give_gradients(group.core);
  }
  return trained;
}

/// Checks that a client trains at most rank r_c and uses at most K_c experts.
void check_budget(const methods::LocalSetup& setup, const methods::ClientProfile& client) {
  EK_CHECK(setup.router.top_k <= client.top_k, kInternal, "client ", client.id, " would use ", setup.router.top_k,
           " experts per token, allowed: ", client.top_k);
  for (const auto& [name, factors] : setup.adapters)
    EK_CHECK(factors.rank() <= client.rank, kConfig, "client ", client.id, " got rank ", factors.rank(), " for ", name,
             ", allowed: ", client.rank);
}

void add_counts(nn::RoutingByLayer& sum, const nn::RoutingByLayer& routing) {
  std::vector<at::Tensor> totals, counts;
  for (const auto& [layer, stats] : routing) {
    auto& total = sum[layer];
    if (!total.counts.defined()) total.counts = at::zeros_like(stats.counts);
    totals.push_back(total.counts), counts.push_back(stats.counts);
    total.tokens += stats.tokens;
  }
  if (!totals.empty()) at::_foreach_add_(totals, counts);
}

/// Returns for each stacked tensor which experts were used or received a gradient from the method; undefined for other
/// tensors.
std::vector<at::Tensor> active_experts(const Trained& trained, std::span<const nn::RoutingByLayer> micro_batches) {
  std::map<std::string, std::vector<at::Tensor>> signs;  // [E] bool each
  for (const auto& routing : micro_batches)
    for (const auto& [layer, stats] : routing) signs[layer].push_back(stats.counts.gt(0));
  for (size_t i = 0; i < trained.tensors.size(); ++i)
    if (const auto& layer = trained.moe_layers[i]; !layer.empty())
      signs[layer].push_back(trained.tensors[i].grad().flatten(1).any(1));
  std::map<std::string, at::Tensor> by_layer;
  for (const auto& [layer, of_layer] : signs) by_layer[layer] = at::stack(of_layer).any(0);
  std::vector<at::Tensor> active;
  for (const auto& layer : trained.moe_layers) active.push_back(layer.empty() ? at::Tensor{} : by_layer.at(layer));
  return active;
}

/// One client's round during training.
class LocalRound {
 public:
  LocalRound(const models::CausalLm& model, const methods::FederatedMethod& method, const LocalWork& work,
             const LocalTraining& training)
      : model_(model),
        method_(method),
        download_(work.download),
        view_(work.view),
        training_(training),
        rows_(work.rows, work.view),
        setup_(method.prepare(work.download, work.view)),
        smaller_top_k_(setup_.router.top_k, work.view) {
    check_budget(setup_, work.view.client);
    trained_ = settled(work.view.sites);
    optimizer_ = make_optimizer(trained_.tensors, training.optimizer, training.compute.engine);
  }

  void step() {
    const auto start = Clock::now();
    try {
      training_.privacy ? learn_privately() : learn();
    } catch (const std::exception&) {
      record_step();  // if the loss of the step before is not finite, that is why this step failed
      throw;
    }
    result_.step_seconds += seconds_since(start);
  }

  LocalResult finish() {
    record_step();
    result_.metrics = metrics_.means();
    for (auto& [layer, stats] : result_.counts) stats.counts = stats.counts.cpu();
    const auto setup = is_elsewhere() ? brought_back() : setup_;
    result_.upload = method_.upload(download_, setup, training_.privacy ? nn::RoutingByLayer() : result_.counts, view_);
    if (training_.privacy) add_private_report();
    return std::move(result_);
  }

  const LocalResult& result() const { return result_; }

 private:
  /// Runs one optimiser step.
  void learn() {
    micro_batches_.clear();
    step_losses_.clear();
    step_targets_ = 0;
    const auto drawn = draw();
    targets_of_step_ = targets_of(drawn);
    student_top_k_ = setup_.distillation.weight > 0 ? smaller_top_k_.draw() : 0;
    if (setup_.reference_top_k > 0) find_reference(drawn);
    for (const auto& rows : merged(drawn, training_.merge_tokens)) pass(rows);
    const auto view = step_view();
    if (!view.micro_batches.empty()) add_penalty(view);
    update(view);
    count_step();
  }

  /// Runs one private step. What the method sees has no routing, so what it does depends on rows through the noisy
  /// gradients alone.
  void learn_privately() {
    const auto& steps = *training_.privacy;
    micro_batches_.clear();
    step_losses_.clear();
    step_targets_ = 0;
    if (!private_gradient_) private_gradient_.emplace(trained_.tensors);
    for (const int64_t index : steps.draws.lot(private_steps_, rows_.size(), steps.report.sampling)) {
      const auto* row = rows_.row(index);
      if (row->targets() == 0) continue;
      pass({row});
      private_gradient_->add_row(steps.report.clip);
    }
    signal_ += private_gradient_->finish(steps, private_steps_++);
    auto view = step_view();
    view.micro_batches = {};
    add_penalty(view);
    update(view);
    if (steps.report.withheld) step_losses_.clear(), step_targets_ = 0;
    count_step();
  }

  /// Changes the trained tensors by their gradients.
  void update(const methods::StepView& view) {
    method_.edit_gradients(view);
    if (training_.max_grad_norm > 0) clip_gradient_norm(trained_.tensors, training_.max_grad_norm, arithmetic());
    if (training_.idle_expert_update == IdleExpertUpdate::kSkip)
      optimizer_->step_active(active_experts(trained_, micro_batches_), Gradients::kZeroed);
    else
      optimizer_->step(training_.optimizer.lr, Gradients::kZeroed);
    method_.edit_parameters(view);
  }

  /// Adds a step to the report.
  void count_step() {
    for (const auto& routing : micro_batches_) add_counts(result_.counts, routing);
    record_step();  // of the step before
    metrics_.begin_read(step_losses_);
    unrecorded_targets_ = step_targets_;
    if (!is_elsewhere()) record_step();
  }

  void add_private_report() {
    auto report = training_.privacy->report;
    report.signal = std::sqrt(std::max(0.0, signal_ / static_cast<double>(std::max<int64_t>(1, private_steps_))));
    if (report.withheld) {
      LocalReport steps_alone;
      steps_alone.steps = result_.steps;
      static_cast<LocalReport&>(result_) = steps_alone;
    }
    result_.privacy = report;
  }

  bool is_elsewhere() const { return training_.residence && !training_.residence->device.is_cpu(); }

  /// Copies everything that the steps use to the device of the base. \return what is trained
  Trained settled(const lora::Sites& sites) {
    if (!training_.residence) return make_trained(setup_, sites);
    const auto start = Clock::now();
    const auto device = training_.residence->device;
    auto copies = training_.residence->copies;
    if (training_.graphs) copies = training_.graphs->copies_of(setup_, copies, device);
    setup_ = copied(setup_, copies);
    given_ = extras_copied(download_, copies);
    synchronize(device);
    result_.move_seconds = seconds_since(start);
    auto trained = make_trained(setup_, sites);
    if (training_.graphs)
      for (const auto& tensor : trained.tensors) tensor.mutable_grad() = copies(tensor.grad());
    return trained;
  }

  methods::LocalSetup brought_back() {
    const auto start = Clock::now();
    auto copies = StorageCopies::to(c10::kCPU);
    auto setup = copied(setup_, copies);
    result_.move_seconds = result_.move_seconds.value_or(0) + seconds_since(start);
    return setup;
  }

  const nn::StepArithmetic& arithmetic() const { return nn::engine_of(training_.compute).step(); }

  methods::StepView step_view() {
    return {.view = view_,
            .download = training_.residence ? given_ : download_,
            .setup = setup_,
            .micro_batches = micro_batches_,
            .lr = training_.optimizer.lr,
            .metrics = metrics_,
            .arithmetic = arithmetic(),
            .reference = setup_.reference_top_k > 0 ? &reference_ : nullptr};
  }

  /// Draws the micro-batches of a step. Micro-batches without a target have no mean loss and are omitted.
  std::vector<ExampleRows> draw() {
    std::vector<ExampleRows> drawn;
    for (int64_t i = 0; i < training_.accumulation; ++i) {
      auto rows = rows_.take(training_.batch_size);
      if (std::any_of(rows.begin(), rows.end(), [](const data::Example* row) { return row->targets() > 0; }))
        drawn.push_back(std::move(rows));
    }
    return drawn;
  }

  data::PackedBatch packed(const ExampleRows& rows) const {
    return training_.share_prefixes ? data::pack_shared(rows, training_.batch_size)
                                    : data::pack(rows, training_.batch_size);
  }

  models::ForwardOptions forward_options() const {
    const auto& common = training_.residence ? training_.residence->common : view_.common;
    return {.adapters = &setup_.adapters,
            .base_change = &common.base_change,
            .router = setup_.router,
            .compute = training_.compute};
  }

  /// Computes the gradients of the step's task loss with reference_top_k experts per token. Nothing else changes: no
  /// count, no recorded loss, and the gradients of the step begin at zero again.
  void find_reference(std::span<const ExampleRows> micro_batches) {
    auto forward = forward_options();
    forward.router.top_k = setup_.reference_top_k;
    for (const auto& rows : merged(micro_batches, training_.merge_tokens))
      backward_of(model_.losses(packed(rows), forward));
    reference_.clear();
    for (const auto& [site, factors] : setup_.adapters)
      reference_[site] = {.a = taken_gradient(factors.a), .b = taken_gradient(factors.b)};
    for (const auto& [name, tensor] : setup_.extra_trainables) taken_gradient(tensor);
  }

  void backward_of(const std::vector<nn::LossSum>& losses) const {
    std::vector<at::Tensor> means;
    for (const auto& loss : losses) means.push_back(loss.sum / divisor(loss));
    (at::stack(means).sum() / static_cast<double>(training_.accumulation)).backward();
  }

  /// Runs forward and backward passes of several micro-batches, each with its own loss.
  void pass(const ExampleRows& rows) {
    const auto own = packed(rows);
    const auto batch = training_.graphs ? data::padded(own, kPaddingStep) : own;
    const size_t before = micro_batches_.size();
    micro_batches_.resize(before + rows.size() / static_cast<size_t>(training_.batch_size));
    auto forward = forward_options();
    forward.routing = std::span(micro_batches_).subspan(before);
    forward.graphs = training_.graphs ? &training_.graphs->passes() : nullptr;
    const auto answers_ND = model_.target_hidden(batch, forward);
    const auto losses = model_.losses(answers_ND, batch, forward);
    at::Tensor total;
    for (size_t i = 0; i < losses.size(); ++i) {
      const auto loss = loss_of(losses[i], before + i);
      total = total.defined() ? total + loss : loss;
    }
    (total / static_cast<double>(training_.accumulation)).backward();
    if (student_top_k_ > 0) distill(own, answers_ND.detach(), losses);
    for (auto& routing : std::span(micro_batches_).subspan(before))
      for (auto& [layer, stats] : routing) stats.router_logits.reset();
    result_.tokens += own.tokens();
  }

  /// Trains a pass with K' experts per token towards the answers of the pass with K_c. Its routing is not counted.
  /// \param answers_ND  final hidden states of the targets at K_c, without a graph
  void distill(const data::PackedBatch& batch, const at::Tensor& answers_ND, const std::vector<nn::LossSum>& losses) {
    auto forward = forward_options();
    forward.router.top_k = student_top_k_;
    forward.router.records_logits = false;
    std::vector<at::Tensor> weights;
    for (const auto& loss : losses)
      weights.push_back(at::full(
          {loss.count}, setup_.distillation.weight / divisor(loss) / static_cast<double>(training_.accumulation),
          answers_ND.options()));
    const auto student_ND = model_.target_hidden(batch, forward);
    const auto divergences = backward_of_divergence(model_, forward, {answers_ND, student_ND, at::cat(weights)},
                                                    setup_.distillation.temperature);
    metrics_.add_sum("distillation_kl", divergences,
                     at::full_like(divergences, static_cast<double>(student_ND.size(0))));
  }

  /// Returns the loss to differentiate for micro-batch `index` of the step, given its task loss.
  at::Tensor loss_of(const nn::LossSum& loss, size_t index) {
    step_losses_.push_back(loss.sum.detach());
    step_targets_ += loss.count;
    auto view = step_view();
    view.micro_batches = view.micro_batches.first(index + 1);
    const auto mean = loss.sum / divisor(loss), extra = method_.extra_loss(view);
    return extra.defined() ? mean + extra : mean;
  }

  /// Adds the gradient of the method's penalty, which is no part of the recorded loss.
  void add_penalty(const methods::StepView& view) const {
    if (const auto penalty = method_.penalty(view); penalty.defined()) penalty.backward();
  }

  /// Returns the divisor of a task loss. pass() divides by the accumulation, so a mean over the step is multiplied by
  /// it here.
  double divisor(const nn::LossSum& loss) const {
    if (training_.loss_mean == LossMean::kMicroBatch) return static_cast<double>(loss.count);
    return static_cast<double>(targets_of_step_) / static_cast<double>(training_.accumulation);
  }

  /// Records the numbers of the step that is not recorded yet, if there is one. With a GPU it is called a
  /// step later, so that the GPU computes one step while the host prepares the next.
  void record_step() {
    if (!unrecorded_targets_) return;
    const int64_t targets = *std::exchange(unrecorded_targets_, std::nullopt);
    double step_loss = 0;
    for (const double sum : metrics_.end_read()) {
      EK_CHECK(std::isfinite(sum), kNumeric, "local step ", result_.steps + 1, ": the loss is ", sum);
      step_loss += sum;
    }
    const double mean = targets > 0 ? step_loss / static_cast<double>(targets) : 0.0;
    if (result_.targets == 0) result_.first_loss = mean;
    if (targets > 0) result_.last_loss = mean;
    result_.loss_sum += step_loss;
    result_.targets += targets;
    ++result_.steps;
  }

  const models::CausalLm& model_;
  const methods::FederatedMethod& method_;
  const lora::Payload& download_;
  const methods::ClientView& view_;
  const LocalTraining& training_;
  RowOrder rows_;
  methods::LocalSetup setup_;
  SmallerTopK smaller_top_k_;
  int64_t student_top_k_ = 0;     // K' of the step; 0: no second pass
  lora::Payload given_;           // used only with a residence
  lora::AdapterState reference_;  // gradients of the step, used only with setup_.reference_top_k
  Trained trained_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<nn::RoutingByLayer> micro_batches_;
  methods::Metrics metrics_;
  LocalResult result_;
  std::vector<at::Tensor> step_losses_;
  int64_t step_targets_ = 0;
  std::optional<int64_t> unrecorded_targets_{};        // of the step whose losses are on their way to the host
  int64_t targets_of_step_ = 0;                        // known before the first pass of the step
  std::optional<PrivateGradient> private_gradient_{};  // used only with private steps, as those below
  int64_t private_steps_ = 0;
  double signal_ = 0;  // sum over the steps of squared ratios
};

}  // namespace

std::vector<ExampleRows> merged(std::span<const ExampleRows> micro_batches, int64_t merge_tokens) {
  std::vector<ExampleRows> passes;
  int64_t tokens = 0;
  for (const auto& rows : micro_batches) {
    const int64_t more = tokens_of(rows);
    if (passes.empty() || tokens + more > merge_tokens) passes.emplace_back(), tokens = 0;
    tokens += more;
    passes.back().insert(passes.back().end(), rows.begin(), rows.end());
  }
  return passes;
}

namespace {

/// Returns the options of passes over single rows, whose gradients must not mix.
LocalTraining of_single_rows(LocalTraining training) {
  EK_CHECK(training.idle_expert_update == IdleExpertUpdate::kZeroGrad, kConfig,
           "train.idle_expert_update = \"skip\" depends on what experts the rows of a step choose, which privacy of "
           "single rows does not cover: use zero_grad");
  training.batch_size = training.accumulation = 1;
  training.loss_mean = LossMean::kMicroBatch;
  training.merge_tokens = 0;
  training.graphs.reset();
  return training;
}

}  // namespace

int64_t local_steps(const LocalTraining& training, int64_t examples) {
  const auto rows_per_step = static_cast<double>(training.rows_of_step());
  return std::max<int64_t>(1, std::llround(training.local_epochs * static_cast<double>(examples) / rows_per_step));
}

int64_t rows_of_round(const LocalTraining& training, int64_t examples) {
  return local_steps(training, examples) * training.rows_of_step();
}

bool LocalReport::measures_no_rows() const {
  return tokens == 0 && targets == 0 && loss_sum == 0 && first_loss == 0 && last_loss == 0 && counts.empty() &&
         metrics.empty();
}

LocalResult train_locally(const models::CausalLm& model, const methods::FederatedMethod& method, const LocalWork& work,
                          const LocalTraining& training, const StepCallback& on_step) {
  EK_CHECK(!work.rows.empty(), kData, "client ", work.view.client.id, " has no rows to train on");
  const auto start = Clock::now();
  const auto own = training.privacy ? of_single_rows(training) : training;
  LocalRound round(model, method, work, own);
  const int64_t steps = local_steps(training, static_cast<int64_t>(work.rows.size()));
  for (int64_t done = 1; done <= steps; ++done) {
    round.step();
    if (on_step) on_step(done, steps, round.result().tokens);
  }
  auto result = round.finish();
  if (!result.privacy || !result.privacy->withheld) result.seconds = seconds_since(start);
  return result;
}

}  // namespace evenkeel::train
