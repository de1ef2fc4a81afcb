#include "fed/config.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/files.h"

namespace evenkeel {
namespace {

constexpr std::array kBudgets = {0.125, 0.25, 0.5, 1.0};

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string in_quotes(std::string_view text) { return concat("\"", text, "\""); }

void check_shares(const config::Table& table, std::string_view key, std::span<const double> shares) {
  for (const double share : shares) table.check_share(key, share);
}

/// One value per client, where there are any.
void check_length(const config::Table& table, std::string_view key, size_t length, int64_t clients) {
  EK_CHECK(length == 0 || length == static_cast<size_t>(clients), kConfig, table.full_key(key), " has ", length,
           " entries, clients.count is ", clients, ": one entry per client is needed", table.place_of(key));
}

std::vector<std::string_view> method_names() {
  std::vector<std::string_view> names;
  for (const auto& entry : methods()) names.push_back(entry.name);
  return names;
}

/// The row of the method that `[method] name` says.
const MethodEntry& named_method(std::string_view name, const config::Table& table) {
  table.check(contains(method_names(), name), "name", in_quotes(name), join(method_names()));
  return find_method(name);
}

/// The row of the method whose table stands under `key`.
const MethodEntry& method_of_table(std::string_view key, const config::Table& table) {
  EK_CHECK(contains(method_names(), key), kConfig, table.full_key(key), " is not a known key", table.place_of(key),
           "; known: name, gate_norm, and of methods: ", join(method_names()));
  return find_method(key);
}

/// One method's table inside `[method]` of the resolved config.
struct MethodKeys {
  const MethodEntry* entry;
  const config::Table* table;
  void visit(config::Writer& writer) { entry->write(*table, writer); }
};

/// The keys of `[method]` that are no tables.
struct MethodChoice {
  std::string& name;
  GateNorm& gate_norm;
  void visit(auto& field) {
    field("name", name, "the method (evenkeel list methods)");
    field("gate_norm", gate_norm,
          "weights of the selected experts: as the checkpoint (olmoe_native), renorm_selected or softmax_all; each "
          "method has its "
          "default");
  }
};

}  // namespace

void LoraSection::resolve(const config::Table& table) const {
  LoraScale::resolve(table);
  table.check(!targets.empty() || router_lora, "targets", "empty", "one module name or more");
}

Sites LoraSection::sites(const CausalLm& model) const {
  auto chosen = model.sites(targets);
  for (const auto& [name, site] : chosen)
    EK_CHECK(site.role != SiteRole::kRouter, kConfig, "lora.targets names ", name.substr(name.rfind('.') + 1),
             ", the router: say lora.router_lora = true or false instead");
  for (const auto& [name, site] : model.all_sites())
    if (router_lora && site.role == SiteRole::kRouter) chosen.emplace(name, site);
  return chosen;
}

void DataSection::resolve(const config::Table& table) const {
  TokenizeOptions::resolve(table);
  table.check_integer("limit", limit, 0, limits::kRows);
  for (const auto& name : task) check_family(name, table);
}

void DataSection::check_family(const std::string& name, const config::Table& table) const {
  const auto known = families();
  table.check(contains(known, name), "task", in_quotes(name), join(known));
  const auto& family = find_task_family(name);
  table.check(!family.in_folder || !path.empty(), "path", "empty", concat("the folder of the files of ", name));
  table.check(name != "files" || !files.by_task().empty(), "files", "empty", "data.files.train: files of rows");
  table.table("partition")
      .check(partition.kind != PartitionKind::kDirichlet || contains(family.label_keys, partition.key), "key",
             in_quotes(partition.key), concat("what the rows of ", name, " have: ", join(family.label_keys)));
}

RowOptions DataSection::rows(int64_t count, uint64_t seed) const {
  return {.path = path,
          .limit = count,
          .seed = seed,
          .label = partition.kind == PartitionKind::kDirichlet ? partition.key : "label",
          .telequad = telequad,
          .files = files,
          .conversations = config::name_of(form) == "chat"};
}

TokenizeOptions DataSection::tokenize_options(int64_t eos_id) const {
  TokenizeOptions options = *this;
  options.eos = eos_id;
  return options;
}

void ClientsSection::resolve(const config::Table& table) const {
  table.check_integer("count", count, 1, limits::kClients);
  table.check_share("participation", participation);
  table.check_integer("parallel", parallel, 1, limits::kThreads);
  check_length(table, "budgets", budgets.size(), count);
  check_length(table, "ranks", ranks.size(), count);
  check_shares(table, "budgets", budgets);
}

void TrainSection::resolve(const config::Table& table) const {
  LocalTraining::resolve(table);
  table.check_integer("rounds", rounds, 1, limits::kSteps);
}

void BertScoreSection::resolve(const config::Table& table) const {
  BertScoreOptions::resolve(table);
  table.check(!encoder.empty() || (layer < 0 && !idf && baseline.empty()), "encoder", "empty",
              "the encoder that layer, idf and baseline are settings of");
}

void EvaluateSection::resolve(const config::Table& table) const {
  EvaluationOptions::resolve(table);
  table.check(!budgets.empty(), "budgets", "empty", "one budget or more");
  check_shares(table, "budgets", budgets);
  table.check(!readings.empty(), "readings", "empty", "a, b");
  for (const auto& reading : readings)
    table.check_entry(reading == "a" || reading == "b", "readings", in_quotes(reading), "a, b");
  table.check_integer("limit", limit, 0, limits::kRows);
  table.check_integer("every", every, 0, limits::kSteps);
}

MethodSection MethodSection::read(const config::Table& table) {
  MethodSection section;
  section.name = table.string("name").value_or(section.name);
  section.gate_norm = named_method(section.name, table).gate_norm;
  MethodChoice choice{section.name, section.gate_norm};
  const auto keys = table.keys();
  config::read(table, choice, std::vector<std::string_view>(keys.begin(), keys.end()));
  std::set<std::string> names(keys.begin(), keys.end());
  names.insert(section.name);
  for (const auto& key : names) {
    if (key == "name" || key == "gate_norm") continue;
    const MethodEntry& entry = method_of_table(key, table);
    entry.make(table.table(key));
    section.tables.emplace_back(&entry, table.table(key));
  }
  return section;
}

std::unique_ptr<FederatedMethod> MethodSection::make() const {
  for (const auto& [entry, table] : tables)
    if (entry->name == name) return entry->make(table);
  fail(kInternal, "method ", name, " has no table");
}

void MethodSection::visit(config::Writer& writer) {
  MethodChoice{name, gate_norm}.visit(writer);
  for (const auto& [entry, table] : tables) writer.nested(entry->name, MethodKeys{entry, &table});
}

ExperimentConfig ExperimentConfig::read(const config::Table& table) {
  constexpr std::array<std::string_view, 1> kReadApart = {"method"};
  ExperimentConfig config;
  config::read(table, config, kReadApart);
  config.method = MethodSection::read(table.table("method"));
  return config;
}

void ExperimentConfig::resolve(const config::Table& table) const {
  const bool plain_name = !name.empty() && name.find('/') == std::string::npos && name[0] != '.';
  table.check(plain_name, "name", in_quotes(name), "a file name without /, not starting with a dot");
  table.check_integer("seed", seed, 0, limits::kAny);
  table.check_integer("threads", threads, 0, limits::kThreads);
  check_tasks(table.table("evaluate"));
  for (const int64_t rank : clients.ranks)
    table.table("clients").check_entry(rank >= 1 && rank <= lora.rank, "ranks", rank,
                                       concat("1 .. lora.rank = ", lora.rank));
}

void ExperimentConfig::check_tasks(const config::Table& table) const {
  try {
    expand_tasks(evaluate.tasks, data.rows());
  } catch (const Error& error) {
    throw error.with_context(concat(table.full_key("tasks"), table.place_of("tasks")));
  }
}

ExperimentConfig ExperimentConfig::load(const std::filesystem::path& file, std::span<const std::string> settings) {
  auto table = config::Table::load(file);
  for (const auto& setting : settings) table.set(setting);
  return read(table);
}

void ExperimentConfig::settle(const MachineChoices& machine) {
  if (threads == 0) threads = machine.threads;
  if (model.compute_dtype == ComputeDtype::kAuto)
    model.compute_dtype = model.stores_wide() ? ComputeDtype::kFloat32 : machine.compute_dtype;
  for (size_t i = clients.budgets.size(); i < static_cast<size_t>(clients.count); ++i)
    clients.budgets.push_back(kBudgets[i % kBudgets.size()]);
  data.path = expand_data_path(data.path, "data.path").string();
  data.files.expand_paths();
  auto& bert = evaluate.bert_score;
  bert.encoder = expand_data_path(bert.encoder, "evaluate.bert_score.encoder").string();
  bert.baseline = expand_data_path(bert.baseline, "evaluate.bert_score.baseline").string();
  if (evaluate.tasks.empty()) evaluate.tasks = data.task;
  evaluate.tasks = expand_tasks(evaluate.tasks, data.rows());
  output.dir = folder().string();
  if (!clients.ranks.empty()) return;
  for (const double budget : clients.budgets) clients.ranks.push_back(method.entry().rank(budget, lora.rank));
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
