#include "flower/federation/request_check.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/plain/json.h"
#include "base/plain/text.h"
#include "fed/run/state_evaluation.h"

namespace evenkeel::flower {
namespace {

using fed::Server, methods::ClientProfile;

template <typename T>
bool holds(const std::vector<T>& all, const T& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

void check_as_self(const ClientProfile& asked, const ClientProfile& self) {
  EK_CHECK(asked.trains && asked.top_k == self.top_k && asked.budget == self.budget && asked.examples == self.examples,
           kData, "asked to train with K = ", asked.top_k, " at budget ", asked.budget, " on ", asked.examples,
           " examples, agreed on: K = ", self.top_k, " at ", self.budget, " on ", self.examples);
  EK_CHECK(asked.rank <= self.rank, kData, "a task of rank ", asked.rank, ", agreed on: up to ", self.rank);
}

void check(const Server& server, const ClientProfile& self, const fed::Task& task, const fed::Train& ask) {
  constexpr double kRounding = 1e-9;  // the server's machine may round a cosine otherwise
  check_as_self(task.client, self);
  EK_CHECK(task.round < server.config->train.rounds, kData, "asked to train after ", task.round,
           " rounds, agreed on: ", server.config->train.rounds, " rounds");
  const auto agreed = server.scheduled_rate(task.round);
  const bool same = agreed ? ask.lr && std::abs(*ask.lr - *agreed) <= kRounding * std::abs(*agreed) : !ask.lr;
  EK_CHECK(same, kData, "asked to train with a learning rate of ", ask.lr.value_or(0),
           ", agreed on: ", agreed.value_or(server.config->train.optimizer.lr));
}

void check(const Server& server, const ClientProfile& self, const fed::Task& task, const fed::SumGradients& ask) {
  const auto sample = agreed_sample(server);
  for (const auto& site : ask.sites)
    EK_CHECK(sample && server.sites.contains(site), kData, "asked for the gradient of ", shown(site),
             ", which was not agreed on");
  EK_CHECK(sample && ask.sample == *sample && task.round == 0 && task.payload.size() == 0, kData,
           "asked for gradients of ", ask.sample.rows, " rows after ", task.round,
           " rounds, agreed on: ", sample ? sample->rows : 0, " rows, before the first round");
  check_as_self(task.client, self);
}

/// Returns true if the run has a score of clients' rows at the task's budget.
bool has_budget(const Server& server, double budget) {
  const auto& evaluate = server.config->evaluate;
  const auto& plans = server.config.plans();
  return holds(evaluate.budgets, budget) ||
         (evaluate.per_client &&
          std::any_of(plans.begin(), plans.end(), [&](const auto& plan) { return plan.budget == budget; }));
}

/// Returns true if the run can have a score at this rank. In mode "a" it is that of the point or, of a client's point,
/// the client's, and clients can have reduced theirs (FederatedMethod::rank_of). In mode "b" the whole adapter can have
/// up to the sum of the clients' ranks (Server::whole_rank).
bool has_rank(const Server& server, int64_t rank, const ClientProfile& point, const fed::Score& ask) {
  const int64_t largest = server.max_rank();
  if (ask.rank_eval_mode == "a")
    return rank >= 1 && rank <= (server.config->evaluate.per_client ? largest : point.rank);
  if (ask.rank_eval_mode.empty()) return rank == point.rank;
  const auto& plans = server.config.plans();
  const auto add = [](int64_t sum, const auto& plan) { return sum + plan.rank; };
  return rank >= largest && rank <= std::accumulate(plans.begin(), plans.end(), int64_t{0}, add);
}

void check_point(const Server& server, const fed::Task& task, const fed::Score& ask) {
  const auto& evaluate = server.config->evaluate;
  const bool sparse = server.model.num_experts > 0;
  const auto modes = server.rank_eval_modes();
  const bool exported =
      ask.served_by == scoring::ServedBy::kRun || (evaluate.as_exported && sparse && ask.rank_eval_mode != "a");
  EK_CHECK(has_budget(server, task.client.budget) && holds(modes, ask.rank_eval_mode) && exported, kData,
           "asked to score at budget ", task.client.budget, ", rank evaluation mode \"", shown(ask.rank_eval_mode),
           "\", as ", config::name_of(ask.served_by), " serves it, which evaluate of the run does not name");
  const auto point = server.evaluator({}, {.budget = task.client.budget, .rank_eval_mode = ask.rank_eval_mode});
  EK_CHECK(task.client.top_k == point.top_k && has_rank(server, task.client.rank, point, ask) && !task.client.trains,
           kData, "asked to score with K = ", task.client.top_k, " and rank ", task.client.rank,
           ", agreed on: K = ", point.top_k, ", rank ", point.rank);
  EK_CHECK(server.config->evaluates_after(task.round), kData, "asked to score after ", task.round,
           " rounds, when the run is not evaluated");
}

void check(const Server& server, const ClientProfile&, const fed::Task& task, const fed::Score& ask) {
  const auto tasks = fed::client_tasks(server);
  const bool agreed = ask.own_rows && !ask.predictions && holds(tasks, ask.task);
  EK_CHECK(agreed, kData, "asked to score ", shown(ask.task), ask.predictions ? " and to send its answers" : "",
           ", agreed on: ", tasks.empty() ? "nothing of the kind" : "scores on its own rows");
  check_point(server, task, ask);
}

void check_known(const Json& received, const Json& read, const std::string& path) {
  if (!received.is_object() || !read.is_object()) return;
  for (const auto& [key, value] : received.items()) {
    const auto known = read.find(key);
    EK_CHECK(known != read.end(), kData, "a request with the field ", shown(concat(path, key)),
             ", which this program does not know");
    check_known(value, *known, concat(path, key, "."));
  }
}

}  // namespace

std::optional<methods::GradientSample> agreed_sample(const Server& server) {
  if (!server.config->method.entry().asks_gradients) return std::nullopt;
  struct Asked {
    methods::GradientSample sample;
  };
  try {
    server.method->initialize(server.view(
        0, [](const std::string&, const methods::GradientSample& sample) -> at::Tensor { throw Asked{sample}; }));
  } catch (const Asked& asked) {
    return asked.sample;
  }
  return std::nullopt;
}

void check_fields(const std::string& received, const std::string& read) {
  check_known(parse_json(received, "a request", kData, {.bytes = size_t{256} << 20}),
              parse_json(read, "a request", kData, {.bytes = size_t{256} << 20}), "");
}

void check_request(const Server& server, const ClientProfile& self, const fed::Task& task) {
  EK_CHECK(task.client.id == self.id, kData, "a task for client ", task.client.id, ", this is client ", self.id);
  std::visit([&](const auto& ask) { check(server, self, task, ask); }, task.ask);
}

void check_request(const Server& server, const fed::StateUpdate& news) {
  EK_CHECK(news.round <= server.config->train.rounds, kData, "news after ", news.round,
           " rounds, agreed on: ", server.config->train.rounds, " rounds");
}

}  // namespace evenkeel::flower
