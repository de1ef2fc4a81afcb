#include "fed/config/run_config.h"

#include <algorithm>
#include <array>
#include <utility>

#include "fed/config/config_paths.h"
#include "fed/config/value_checks.h"

namespace evenkeel::fed {
namespace {

constexpr std::array kBudgets = {0.125, 0.25, 0.5, 1.0};

/// Replaces the values in `all` of clients that have a value of their own.
template <typename T>
void put_own(const std::vector<ClientSection>& clients, std::optional<T> ClientSection::*own, std::vector<T>& all) {
  for (size_t i = 0; i < clients.size(); ++i)
    if (clients[i].*own) all[i] = *(clients[i].*own);
}

bool is_among(const std::string& value, const std::vector<std::string>& list) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

/// Returns one value for every client.
template <typename T>
std::vector<T> each_client(const ExperimentConfig& config, const PerClient<T>& values) {
  return values.of(config.clients.count, static_cast<uint64_t>(config.seed));
}

/// Expands evaluate.best.tasks, and checks that they are scored and have the measure.
void settle_best(ExperimentConfig& config) {
  const auto rows = config.rows();
  const auto& tasks = config.evaluate.tasks;
  auto& best = config.evaluate.best;
  best.tasks = data::expand_tasks(best.tasks, rows);
  for (const auto& task : best.tasks)
    EK_CHECK(is_among(task, tasks), kConfig, "evaluate.best.tasks holds ", in_quotes(task),
             ", allowed: some of evaluate.tasks, ", join(tasks));
  for (const auto& task : config.seeks_best() ? tasks : std::vector<std::string>())
    EK_CHECK(!(best.tasks.empty() || is_among(task, best.tasks)) ||
                 scoring::measure_of(best.measure).is_of(scoring::kind_of(data::find_task(task, rows).scoring)),
             kConfig, "evaluate.best.measure is ", in_quotes(config::name_of(best.measure)), ", which task ", task,
             " is not scored by, allowed: a measure of all of evaluate.best.tasks");
}

/// Settles budgets. A pattern stays a pattern, which keeps the text short, unless single clients have own budgets.
void settle_budgets(ExperimentConfig& config) {
  auto& clients = config.clients;
  if (!clients.budgets.listed() && clients.client.empty()) return;
  auto all = each_client(config, clients.budgets);
  for (size_t i = all.size(); i < static_cast<size_t>(clients.count); ++i) all.push_back(kBudgets[i % kBudgets.size()]);
  put_own(clients.client, &ClientSection::budget, all);
  clients.budgets = {.list = std::move(all)};
}

/// Settles ranks. If none are given, they follow the budgets and have the same form (list or pattern).
void settle_ranks(ExperimentConfig& config) {
  auto& ranks = config.clients.ranks;
  const auto& budgets = config.clients.budgets;
  const auto rank_of = [&](const std::vector<double>& of) {
    std::vector<int64_t> all;
    for (const double budget : of) all.push_back(config.method.entry().rank(budget, config.lora.rank));
    return all;
  };
  if (ranks.numbers().empty())
    ranks = {.list = rank_of(budgets.list),
             .values = rank_of(budgets.values),
             .shares = budgets.shares,
             .deal = budgets.deal};
  if (config.clients.client.empty()) return;
  auto all = each_client(config, ranks);
  put_own(config.clients.client, &ClientSection::rank, all);
  ranks = {.list = std::move(all)};
}

void settle_machines(ExperimentConfig& config) {
  auto& clients = config.clients;
  const auto says = [](const ClientSection& client) { return client.profile.has_value(); };
  if (std::none_of(clients.client.begin(), clients.client.end(), says)) return;
  auto all = each_client(config, clients.profiles);
  all.resize(static_cast<size_t>(clients.count));
  put_own(clients.client, &ClientSection::profile, all);
  clients.profiles = {.list = std::move(all)};
}

/// Returns a key whose value is open; nothing in a settled config.
std::optional<std::string_view> open_key(const ExperimentConfig& config) {
  const auto& model = config.model;
  const auto& tasks = config.evaluate.tasks;
  const std::array<std::pair<std::string_view, bool>, 10> open = {
      {{"threads", config.threads < 1},
       {"model.device", model.device == "auto"},
       {"model.engine", model.engine == EngineChoice::kAuto},
       {"model.graphs", model.graphs == GraphsChoice::kAuto},
       {"model.cuda_kernels", model.cuda_kernels == "auto"},
       {"model.compute_dtype", model.compute_dtype == ComputeDtype::kAuto},
       {"data.date", config.data.date == jinja::Date::kToday},
       {"clients.budgets", config.clients.budgets.numbers().empty()},
       {"clients.ranks", config.clients.ranks.numbers().empty()},
       {"evaluate.tasks", tasks.empty() || data::expand_tasks(tasks, config.rows()) != tasks}}};
  for (const auto& [key, is_open] : open)
    if (is_open) return key;
  return std::nullopt;
}

std::vector<ClientPlan> plans_of(const ExperimentConfig& config, std::vector<data::ClientFiles> files) {
  const auto budgets = each_client(config, config.clients.budgets);
  const auto ranks = each_client(config, config.clients.ranks);
  const auto machines = each_client(config, config.clients.profiles);
  std::vector<ClientPlan> plans;
  for (size_t i = 0; i < budgets.size(); ++i) {
    auto& plan = plans.emplace_back(ClientPlan{.budget = budgets[i], .rank = ranks.at(i)});
    if (!machines.empty()) plan.machine = machines[i];
    if (!files.empty()) plan.rows = std::move(files[i]);
  }
  return plans;
}

std::vector<std::string> tasks_here(const ExperimentConfig& config, const data::RowOptions& rows) {
  auto tasks = config.evaluate.tasks;
  if (config.clients.rows_elsewhere())
    std::erase_if(tasks, [&](const auto& task) { return data::find_task(task, rows).family == "files"; });
  return tasks;
}

}  // namespace

RunConfig::RunConfig(ExperimentConfig values) {
  const auto rows = values.rows();
  auto common_rows = rows;
  common_rows.files.clients.clear();
  settled_ = std::make_shared<const Settled>(Settled{.values = values,
                                                     .plans = plans_of(values, rows.files.clients),
                                                     .rows = rows,
                                                     .common_rows = std::move(common_rows),
                                                     .tasks_here = fed::tasks_here(values, rows)});
}

RunConfig RunConfig::of_settled(ExperimentConfig values, std::string_view source) {
  const auto open = open_key(values);
  EK_CHECK(!open, kConfig, source, ": ", open.value_or(""), " is open, but a run's config names every value");
  return RunConfig(std::move(values));
}

data::RowOptions RunConfig::rows(int64_t limit) const {
  auto options = settled_->rows;
  options.limit = limit;
  return options;
}

data::RowOptions RunConfig::own_rows(int64_t client, int64_t limit) const {
  auto options = settled_->common_rows;
  options.limit = limit;
  options.files.clients = {plan(client).rows.value()};
  return options;
}

data::RowOptions RunConfig::rows_to_score(std::optional<int64_t> own_of, int64_t limit,
                                          const std::vector<int64_t>& left_out) const {
  if (own_of) return own_rows(*own_of, limit);
  auto options = rows(limit);
  for (auto id = left_out.rbegin(); id != left_out.rend(); ++id)
    options.files.clients.erase(options.files.clients.begin() + *id);
  return options;
}

std::vector<int64_t> RunConfig::left_out_after(int64_t rounds) const {
  std::vector<int64_t> ids;
  for (int64_t id = 0; id < std::ssize(rows().files.clients); ++id)
    if (const auto until = settled_->values.clients.until(id); until && *until < rounds) ids.push_back(id);
  return ids;
}

RunConfig RunConfig::with(const std::function<void(ExperimentConfig& values)>& change) const {
  auto values = settled_->values;
  change(values);
  const auto open = open_key(values);
  EK_CHECK(!open, kInternal, "a change of a settled config leaves ", open.value_or(""), " open");
  return RunConfig(std::move(values));
}

RunConfig settle(ExperimentConfig asked, const MachineChoices& machine) {
  if (asked.threads == 0) asked.threads = std::max<int64_t>(1, machine.threads / asked.clients.parallel);
  asked.model.settle(machine);
  asked.check_parallel("");
  settle_budgets(asked);
  expand_paths(asked);
  asked.data.date = jinja::Date::settled(asked.data.date);
  auto& tasks = asked.evaluate.tasks;
  tasks = data::expand_tasks(tasks.empty() ? std::vector<std::string>(asked.data.task) : tasks, asked.rows());
  settle_best(asked);
  asked.output.dir = asked.folder().string();
  settle_ranks(asked);
  settle_machines(asked);
  return RunConfig(std::move(asked));
}

}  // namespace evenkeel::fed
