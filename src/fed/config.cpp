#include "fed/config.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "base/files.h"
#include "base/limits.h"
#include "nn/kernels/frozen_matmul.h"

namespace evenkeel {
namespace {

using limits::check_above_zero;
using limits::check_integer;

constexpr std::array kBudgets = {0.125, 0.25, 0.5, 1.0};

void check_seed(std::string_view key, int64_t seed) {
  EK_CHECK(seed >= 0, kConfig, key, " is ", seed, ", allowed: 0 or more");
}

void check_share(std::string_view key, double value) {
  EK_CHECK(value > 0 && value <= 1, kConfig, key, " is ", value, ", allowed: greater than 0, at most 1");
}

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void check(const LoraSection& lora) {
  check_integer("lora.rank", lora.rank, 1, limits::kRank);
  check_above_zero("lora.alpha", lora.alpha);
  EK_CHECK(!lora.targets.empty() || lora.router_lora, kConfig,
           "lora.targets is empty, allowed: one module name or more");
  const bool router = std::find(lora.targets.begin(), lora.targets.end(), "gate") != lora.targets.end();
  EK_CHECK(!router, kConfig, "lora.targets names gate, the router: say lora.router_lora = true or false instead");
}

void check(const DataSection& data) {
  const auto known = families();
  EK_CHECK(contains(known, data.task), kConfig, "data.task is \"", data.task, "\", allowed: ", join(known));
  EK_CHECK(data.task == "builtin" || !data.path.empty(), kConfig, "data.path is empty, data.task = \"", data.task,
           "\" needs the folder of its files");
  check_integer("data.cutoff", data.cutoff, 2, limits::kTokens);
  check_integer("data.limit", data.limit, 0, limits::kRows);
  check_above_zero("data.partition.alpha", data.partition.alpha);
  const auto keys = label_keys(data.task);
  EK_CHECK(data.partition.kind != PartitionKind::kDirichlet || contains(keys, data.partition.key), kConfig,
           "data.partition.key is \"", data.partition.key, "\", the rows of ", data.task, " have: ", join(keys));
  check_seed("data.telequad.split_seed", data.telequad.split_seed);
  check_share("data.telequad.train_share", data.telequad.train_share);
}

void check(const ClientsSection& clients, int64_t max_rank) {
  check_integer("clients.count", clients.count, 1, limits::kClients);
  check_share("clients.participation", clients.participation);
  check_integer("clients.parallel", clients.parallel, 1, limits::kThreads);
  const auto count = static_cast<size_t>(clients.count);
  EK_CHECK(clients.budgets.empty() || clients.budgets.size() == count, kConfig, "clients.budgets has ",
           clients.budgets.size(), " entries, clients.count is ", count, ": one budget per client is needed");
  EK_CHECK(clients.ranks.empty() || clients.ranks.size() == count, kConfig, "clients.ranks has ", clients.ranks.size(),
           " entries, clients.count is ", count, ": one rank per client is needed");
  for (double budget : clients.budgets) check_share("clients.budgets", budget);
  for (int64_t rank : clients.ranks)
    EK_CHECK(rank >= 1 && rank <= max_rank, kConfig, "clients.ranks holds ", rank,
             ", allowed: 1 .. lora.rank = ", max_rank);
}

void check(const TrainSection& train) {
  check_integer("train.rounds", train.rounds, 1, limits::kSteps);
  check_above_zero("train.local_epochs", train.local_epochs);
  check_integer("train.batch_size", train.batch_size, 1, limits::kBatch);
  check_integer("train.accumulation", train.accumulation, 1, limits::kBatch);
  train.optimizer.check("train.optimizer");
}

void check(const EvaluateSection& evaluate) {
  try {
    expand_tasks(evaluate.tasks);
  } catch (const Error& error) {
    throw error.with_context("evaluate.tasks");
  }
  for (double budget : evaluate.budgets) check_share("evaluate.budgets", budget);
  EK_CHECK(!evaluate.budgets.empty(), kConfig, "evaluate.budgets is empty, allowed: one budget or more");
  EK_CHECK(!evaluate.readings.empty(), kConfig, "evaluate.readings is empty, allowed: a, b");
  for (const auto& reading : evaluate.readings)
    EK_CHECK(reading == "a" || reading == "b", kConfig, "evaluate.readings holds \"", reading, "\", allowed: a, b");
  check_integer("evaluate.limit", evaluate.limit, 0, limits::kRows);
  check_integer("evaluate.max_new_tokens", evaluate.max_new_tokens, 1, limits::kTokens);
  check_integer("evaluate.cutoff", evaluate.cutoff, 0, limits::kTokens);
  const auto& bert = evaluate.bert_score;
  check_integer("evaluate.bert_score.layer", bert.layer, -1, limits::kLayers);
  EK_CHECK(!bert.encoder.empty() || (bert.layer < 0 && !bert.idf && bert.baseline.empty()), kConfig,
           "evaluate.bert_score.encoder is empty, and layer, idf and baseline are settings of an encoder");
  check_integer("evaluate.batch_size", evaluate.batch_size, 1, limits::kBatch);
  check_integer("evaluate.every", evaluate.every, 0, limits::kSteps);
}

/// One method's table inside `[method]` of the resolved config.
struct MethodKeys {
  const MethodEntry* entry;
  const config::Table* table;
  void visit(config::Writer& writer) { entry->write(*table, writer); }
};

/// What "auto" stands for: nothing to choose when the base is stored wide, else what this machine does faster.
ComputeDtype measured(BaseDtype base) {
  if (base == BaseDtype::kFloat32 || base == BaseDtype::kFloat64) return ComputeDtype::kFloat32;
  return probe_matmul_path() == MatmulPath::kNative ? ComputeDtype::kBFloat16 : ComputeDtype::kFloat32;
}

}  // namespace

std::vector<std::string> LoraSection::all_targets(const ModelSpec& model) const {
  auto all = targets;
  if (router_lora && model.num_experts > 0) all.emplace_back("gate");
  return all;
}

LocalTraining TrainSection::local() const {
  return {local_epochs, batch_size, accumulation, optimizer, idle_expert_update};
}

BertScoreOptions BertScoreSection::options() const {
  return {.layer = layer >= 0 ? std::optional(layer) : std::nullopt, .idf = idf, .baseline = baseline};
}

EvaluationOptions EvaluateSection::options(PromptTemplate form) const {
  return {form, decode, max_new_tokens, lowercase, likelihood, batch_size, cutoff, nullptr};
}

RowOptions DataSection::rows(int64_t count, uint64_t seed) const {
  return {path, count, seed, partition.kind == PartitionKind::kDirichlet ? partition.key : "label", telequad};
}

MethodSection MethodSection::read(const config::Table& table) {
  MethodSection section;
  section.name = table.string("name").value_or(section.name);
  find_method(section.name);
  for (const auto& key : table.keys()) {
    if (key == "name") continue;
    const MethodEntry& entry = find_method(key);
    entry.make(table.table(key));
    section.tables.emplace_back(&entry, table.table(key));
  }
  const MethodEntry& selected = find_method(section.name);
  if (!table.contains(section.name)) section.tables.emplace_back(&selected, table.table(section.name));
  return section;
}

std::unique_ptr<FederatedMethod> MethodSection::make() const {
  for (const auto& [entry, table] : tables)
    if (entry->name == name) return entry->make(table);
  fail(kInternal, "method ", name, " has no table");
}

void MethodSection::visit(config::Writer& writer) {
  writer("name", name, "the method (evenkeel list methods)");
  for (const auto& [entry, table] : tables) writer.nested(entry->name, MethodKeys{entry, &table});
}

ExperimentConfig ExperimentConfig::read(const config::Table& table) {
  constexpr std::array<std::string_view, 1> kReadApart = {"method"};
  ExperimentConfig config;
  config::read(table, config, kReadApart);
  config.method = MethodSection::read(table.table("method"));
  config.check();
  return config;
}

ExperimentConfig ExperimentConfig::load(const std::filesystem::path& file, std::span<const std::string> settings) {
  auto table = config::Table::load(file);
  for (const auto& setting : settings) table.set(setting);
  return read(table);
}

void ExperimentConfig::check() const {
  const bool plain_name = !name.empty() && name.find('/') == std::string::npos && name[0] != '.';
  EK_CHECK(plain_name, kConfig, "name is \"", name, "\", allowed: a file name without /, not starting with a dot");
  check_seed("seed", seed);
  check_integer("threads", threads, 0, limits::kThreads);
  evenkeel::check(lora);
  evenkeel::check(data);
  evenkeel::check(clients, lora.rank);
  evenkeel::check(train);
  evenkeel::check(evaluate);
}

void ExperimentConfig::resolve() {
  if (threads == 0) threads = at::intraop_default_num_threads();
  at::set_num_threads(static_cast<int>(threads));
  if (model.compute_dtype == ComputeDtype::kAuto) model.compute_dtype = measured(model.dtype);
  for (size_t i = clients.budgets.size(); i < static_cast<size_t>(clients.count); ++i)
    clients.budgets.push_back(kBudgets[i % kBudgets.size()]);
  data.path = expand_data_path(data.path, "data.path").string();
  auto& bert = evaluate.bert_score;
  bert.encoder = expand_data_path(bert.encoder, "evaluate.bert_score.encoder").string();
  bert.baseline = expand_data_path(bert.baseline, "evaluate.bert_score.baseline").string();
  if (evaluate.tasks.empty()) evaluate.tasks = {data.task};
  evaluate.tasks = expand_tasks(evaluate.tasks);
  output.dir = folder().string();
  if (!clients.ranks.empty()) return;
  for (double budget : clients.budgets) clients.ranks.push_back(rank_at(budget));
}

int64_t ExperimentConfig::rank_at(double budget) const {
  if (find_method(method.name).family != MethodFamily::kRank) return lora.rank;
  return std::max<int64_t>(1, std::llround(static_cast<double>(lora.rank) * (0.2 + 0.8 * budget)));
}

std::string ExperimentConfig::text(bool comments) const {
  config::Writer writer;
  ExperimentConfig copy = *this;
  copy.visit(writer);
  writer.nested("method", method);
  return writer.text(comments);
}

std::filesystem::path ExperimentConfig::folder() const {
  return output.dir.empty() ? std::filesystem::path("runs") / name : std::filesystem::path(output.dir);
}

}  // namespace evenkeel
