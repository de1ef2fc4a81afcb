#include "fed/workplace.h"

#include "lora/algebra.h"

namespace evenkeel {

void SharedState::receive(const News& news) {
  const auto payload =
      news.payload.size() > 0 ? received(decode(news.payload.bytes, "news for all clients")) : Payload{};
  if (!news.whole) return receive_change(news.round, payload.base_delta);
  const std::scoped_lock lock(mutex_);
  common_ = {.fixed = payload.adapters, .base_change = payload.base_delta};
  round_ = news.round;
}

void SharedState::take(const ServerState& state) {
  const std::scoped_lock lock(mutex_);
  common_ = state.common;
  round_ = state.round;
}

void SharedState::receive_change(int64_t round, const AdapterState& base_delta) {
  const std::scoped_lock lock(mutex_);
  if (round <= round_) return;
  EK_CHECK(base_delta.empty() || round == round_ + 1, kData, "a change of the base after round ", round,
           " arrived, the last one known is of round ", round_);
  add_to_base(common_.base_change, base_delta);
  round_ = round;
}

LocalTraining Workplace::training() const {
  LocalTraining training = config.train;
  training.compute = config.model.compute();
  return training;
}

ForwardOptions Workplace::forward(const LocalSetup& setup) const {
  return {.adapters = &setup.adapters,
          .base_change = &shared->common().base_change,
          .router = setup.router,
          .compute = config.model.compute()};
}

EvaluationOptions Workplace::evaluation() const {
  EvaluationOptions options = config.evaluate;
  options.form = config.data.form;
  if (bert_scorer) options.bert_scorer = &*bert_scorer;
  options.journal = answers.get();
  return options;
}

}  // namespace evenkeel
