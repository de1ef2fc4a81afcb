#include "fed/exchange/client_context.h"

#include "lora/algebra.h"

namespace evenkeel::fed {
void SharedState::receive(const StateUpdate& news) {
  const auto payload = news.payload.size() > 0
                           ? lora::received(lora::decode(news.payload.bytes, "news for all clients"))
                           : lora::Payload{};
  if (!news.whole) return receive_change(news.round, payload.base_delta);
  const std::scoped_lock lock(mutex_);
  residence_.reset();
  common_ = {.fixed = payload.adapters, .base_change = payload.base_delta};
  round_ = news.round;
}

void SharedState::take(const methods::ServerState& state) {
  const std::scoped_lock lock(mutex_);
  residence_.reset();
  common_ = state.common;
  round_ = state.round;
}

void SharedState::receive_change(int64_t round, const lora::AdapterState& base_delta) {
  const std::scoped_lock lock(mutex_);
  if (round <= round_) return;
  EK_CHECK(base_delta.empty() || round == round_ + 1, kData, "a change of the base after round ", round,
           " arrived, the last one known is of round ", round_);
  if (!base_delta.empty()) residence_.reset();
  lora::add_to_base(common_.base_change, base_delta);
  round_ = round;
}

std::shared_ptr<const train::Residence> SharedState::residence(c10::Device device) {
  if (device.is_cpu() || device.is_meta()) return nullptr;
  const std::scoped_lock lock(mutex_);
  if (residence_) return residence_;
  if (!lent_.expired()) residence_memory_ = {};  // a client still computes with it
  residence_ = std::make_shared<const train::Residence>(train::make_residence(common_, device, residence_memory_));
  lent_ = residence_;
  return residence_;
}

std::shared_ptr<train::StepGraphs> SharedState::graphs(nn::EngineKind engine) {
  const std::scoped_lock lock(mutex_);
  if (!graphs_) graphs_ = std::make_shared<train::StepGraphs>(engine);
  return graphs_;
}

train::LocalTraining ClientContext::training() const {
  train::LocalTraining training = config->train;
  training.compute = config->model.compute();
  training.residence = shared->residence(model->device());
  training.graphs = graphs();
  return training;
}

std::shared_ptr<train::StepGraphs> ClientContext::graphs() const {
  const bool records = !model->device().is_cpu() && config->model.graphs == GraphsChoice::kOn;
  return records ? shared->graphs(config->model.compute().engine) : nullptr;
}

models::ForwardOptions ClientContext::forward(const methods::LocalSetup& setup) const {
  const auto residence = shared->residence(model->device());
  return {.adapters = &setup.adapters,
          .base_change = residence ? &residence->common.base_change : &shared->common().base_change,
          .router = setup.router,
          .compute = config->model.compute()};
}

methods::LocalSetup ClientContext::on_device(methods::LocalSetup setup) const {
  const auto residence = shared->residence(model->device());
  if (!residence) return setup;
  auto copies = residence->copies;
  return train::copied(setup, copies);
}

scoring::EvaluationOptions ClientContext::evaluation() const {
  scoring::EvaluationOptions options = config->evaluate;
  options.form = config->data.form;
  if (bert_scorer) options.bert_scorer = &*bert_scorer;
  options.journal = answers.get();
  return options;
}

std::shared_ptr<const scoring::PreparedTask> ClientContext::test_rows(const TestRowsKey& key) const {
  return prepared->get(key, [&] {
    const auto from = config.rows_to_score(key.own_of, key.limit, key.left_out);
    auto set = data::test_rows(data::find_task(key.task, from), from);
    return std::make_shared<const scoring::PreparedTask>(data::find_task(key.task, config.rows()), std::move(set),
                                                         tokenizer, model->spec(), evaluation());
  });
}

}  // namespace evenkeel::fed
