#include "fed/config/experiment_config.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/plain/text.h"
#include "fed/config/sampling.h"

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

/// Calls `check(table, key, number)` for each number of `key`, with the table and key of the list or the pattern.
template <typename T, typename Check>
void check_each(const config::Table& table, std::string_view key, const PerClient<T>& numbers, const Check& check) {
  const auto place = numbers.listed() ? table : table.table(key);
  for (const T& number : numbers.numbers()) check(place, numbers.listed() ? key : "values", number);
}

/// Checks that a list has one value per client.
template <typename T>
void check_length(const config::Table& table, std::string_view key, const PerClient<T>& numbers, int64_t clients) {
  const size_t length = numbers.list.size();
  EK_CHECK(length == 0 || length == static_cast<size_t>(clients), kConfig, table.full_key(key), " has ", length,
           " entries, clients.count is ", clients, ": one entry per client is needed", table.place_of(key));
}

/// Replaces the values in `all` of clients that have a value of their own.
template <typename T>
void put_own(const std::vector<ClientSection>& clients, std::optional<T> ClientSection::*own, std::vector<T>& all) {
  for (size_t i = 0; i < clients.size(); ++i)
    if (clients[i].*own) all[i] = *(clients[i].*own);
}

/// Returns true if `name` can be shown in lines and tables.
bool is_plain(std::string_view name) { return name.size() <= 64 && escaped(name) == name; }

void check_names(const config::Table& table, std::span<const ClientSection> clients) {
  std::map<std::string_view, size_t> seen;
  for (size_t i = 0; i < clients.size(); ++i) {
    const auto& name = clients[i].name;
    if (name.empty()) continue;
    const auto [first, is_new] = seen.emplace(name, i);
    EK_CHECK(is_new, kConfig, table.full_key("client"), "[", i, "] is named ", in_quotes(name), ", as is [",
             first->second, "]: names tell clients apart", table.tables("client")[i].place_of("name"));
  }
}

/// Checks that either all clients have rows of their own or none has, because the rows of [data] could not be divided
/// otherwise.
void check_all_or_none(const config::Table& table, const ClientsSection& clients) {
  for (size_t i = 0; i < clients.client.size(); ++i)
    EK_CHECK(clients.client[i].data.empty() != clients.own_rows(), kConfig, table.full_key("client"), ": ",
             clients.who(static_cast<int64_t>(i)), " has ", clients.own_rows() ? "no `data`" : "`data`", ", ",
             clients.who(0), clients.own_rows() ? " has" : " has none",
             ": either every client brings rows of its own, or those of [data] are dealt out to all",
             table.tables("client")[i].place_of("data"));
}

/// Applies `change` to the files of every client. Errors name the client.
template <typename Change>
void change_files(ClientsSection& clients, const Change& change) {
  for (size_t i = 0; i < clients.client.size(); ++i) {
    try {
      change(clients.client[i].data);
      change(clients.client[i].test);
    } catch (const Error& error) {
      throw error.with_context(clients.who(static_cast<int64_t>(i)));
    }
  }
}

std::vector<std::string_view> method_names() {
  std::vector<std::string_view> names;
  for (const auto& entry : methods()) names.push_back(entry.name);
  return names;
}

/// Returns the registry entry of the method that `[method] name` selects. \throws kConfig
const MethodEntry& named_method(std::string_view name, const config::Table& table) {
  table.check(contains(method_names(), name), "name", in_quotes(name), join(method_names()));
  return find_method(name);
}

/// Returns the registry entry of the method with a table under `key`. \throws kConfig
const MethodEntry& method_of_table(std::string_view key, const config::Table& table) {
  EK_CHECK(contains(method_names(), key), kConfig, table.full_key(key), " is not a known key", table.place_of(key),
           "; known: name, gate_norm, and of methods: ", join(method_names()));
  return find_method(key);
}

/// Writes one method's table inside `[method]`.
struct MethodKeys {
  const MethodEntry* entry;
  const config::Table* table;
  void visit(config::Writer& writer) { entry->write(*table, writer); }
};

/// The keys of `[method]` other than methods' tables.
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
  if (!init.empty()) check_path_text(init, table.full_key("init"));
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
  if (!date.empty()) {
    jinja::Date::read(jinja::Date::settled(date), table.full_key("date"));
    table.check(form == PromptTemplate::kChat, "date", "given", "with template = \"chat\" only");
  }
  if (chat_template.empty()) return;
  check_path_text(chat_template, table.full_key("chat_template"));
  table.check(form == PromptTemplate::kChat, "chat_template", "given", "with template = \"chat\" only");
}

void DataSection::check_family(const std::string& name, const config::Table& table) const {
  const auto known = families();
  table.check(contains(known, name), "task", in_quotes(name), join(known));
  const auto& family = find_task_family(name);
  table.check(!family.in_folder || !path.empty(), "path", "empty", concat("the folder of the files of ", name));
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
          .form = form};
}

TokenizeOptions DataSection::tokenize_options(int64_t eos_id) const {
  TokenizeOptions options = *this;
  options.eos = eos_id;
  return options;
}

void ClientSection::resolve(const config::Table& table) const {
  const std::string of = name.empty() ? "" : concat(" of ", in_quotes(name));
  EK_CHECK(is_plain(name), kConfig, table.full_key("name"), " is ", in_quotes(shown(name)),
           ", allowed: up to 64 bytes of printable text", table.place_of("name"));
  if (budget) limits::check_share(concat(table.full_key("budget"), of), *budget, table.place_of("budget"));
  EK_CHECK(held_out.value_or(0) >= 0 && held_out.value_or(0) < 1, kConfig, table.full_key("held_out"), of, " is ",
           *held_out, ", allowed: 0 or more, less than 1", table.place_of("held_out"));
  EK_CHECK(test.empty() || !held_out, kConfig, table.full_key("held_out"), of, " is ", *held_out,
           ", but `test` names its test rows", table.place_of("held_out"));
  EK_CHECK(!data.empty() || test.empty(), kConfig, table.full_key("test"), of,
           " names test rows, allowed: beside `data`, training rows of its own", table.place_of("test"));
  for (const auto* files : {&data, &test})
    for (const auto& pattern : *files) check_path_text(pattern, concat(table.full_key("data"), of));
}

void ClientsSection::resolve(const config::Table& table) {
  const auto named = static_cast<int64_t>(client.size());
  if (named > 0 && !table.contains("count")) count = named;
  table.check_integer("count", count, 1, limits::kClients);
  table.check(named == 0 || named == count, "count", count,
              concat(named, ", as many as there are [[", table.full_key("client"), "]]"));
  table.check_share("participation", participation);
  table.check_integer("parallel", parallel, 1, limits::kThreads);
  check_length(table, "budgets", budgets, count);
  check_length(table, "ranks", ranks, count);
  check_length(table, "profiles", profiles, count);
  table.check_from_zero("deadline", deadline);
  table.check_integer("most_examples", most_examples, 0, limits::kRows);
  table.check_from_zero("update_norm", update_norm);
  const int64_t drawn = drawn_clients(count, participation);
  table.check(quorum >= 1 && quorum <= drawn, "quorum", quorum,
              concat("1 .. ", drawn, ", the clients drawn per round"));
  check_each(table, "budgets", budgets, [](const auto& at, auto key, double share) { at.check_share(key, share); });
  check_names(table, client);
  check_all_or_none(table, *this);
}

bool ClientsSection::rows_elsewhere() const {
  return own_rows() && client.front().data == std::vector<std::string>{std::string(kRowsElsewhere)};
}

bool ClientsSection::own_rows() const {
  return std::any_of(client.begin(), client.end(), [](const ClientSection& one) { return !one.data.empty(); });
}

std::optional<std::string> ClientsSection::name(int64_t id) const {
  const auto i = static_cast<size_t>(id);
  if (id < 0 || i >= client.size() || client[i].name.empty()) return std::nullopt;
  return client[i].name;
}

std::string ClientsSection::who(int64_t id) const {
  const auto known = name(id);
  return known ? concat("client ", id, " (", *known, ")") : concat("client ", id);
}

void TrainSection::resolve(const config::Table& table) const {
  LocalTraining::resolve(table);
  table.check_integer("rounds", rounds, 1, limits::kSteps);
  table.table("schedule")
      .check(schedule.warmup <= rounds, "warmup_rounds", schedule.warmup, concat("0 .. train.rounds = ", rounds));
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
  table.check(!rank_eval_modes.empty(), "rank_eval_modes", "empty", "a, b");
  for (const auto& mode : rank_eval_modes)
    table.check_entry(mode == "a" || mode == "b", "rank_eval_modes", in_quotes(mode), "a, b");
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

std::vector<std::string> ExperimentConfig::rename_keys(config::Table& table) {
  static constexpr std::array<config::RenamedKey, 5> kRenamed{{{"", "devices", "client_profiles"},
                                                               {"clients", "devices", "profiles"},
                                                               {"clients.client", "device", "profile"},
                                                               {"train", "share_beginnings", "share_prefixes"},
                                                               {"evaluate", "readings", "rank_eval_modes"}}};
  return table.rename(kRenamed);
}

ExperimentConfig ExperimentConfig::read(config::Table table) {
  rename_keys(table);
  constexpr std::array<std::string_view, 2> kReadApart = {"method", "cluster"};
  ExperimentConfig config;
  config::read(table, config, kReadApart);
  config.method = MethodSection::read(table.table("method"));
  return config;
}

void ExperimentConfig::resolve(const config::Table& table) {
  const bool plain_name = !name.empty() && name.find('/') == std::string::npos && name[0] != '.';
  table.check(plain_name, "name", in_quotes(name), "a file name without /, not starting with a dot");
  table.check_integer("seed", seed, 0, limits::kAny);
  table.check_integer("threads", threads, 0, limits::kThreads);
  check_parallel(table.table("clients").place_of("parallel"));
  check_ranks(table.table("clients"));
  check_machines(table.table("clients"));
  check_own_rows(table);
  give_files();
  table.table("data").check(
      std::count(data.task.begin(), data.task.end(), "files") == 0 || !data.files.by_task().empty(), "files", "empty",
      "files of rows: data.files.train, or `data` of every [[clients.client]]");
  check_tasks(table.table("evaluate"));
}

/// Checks that clients do not train in parallel on a GPU, whose memory fits one client at a time.
void ExperimentConfig::check_parallel(const std::string& place) const {
  EK_CHECK(clients.parallel == 1 || !names_gpu(model.device), kConfig, "clients.parallel is ", clients.parallel,
           ", allowed: 1, where model.device is \"", model.device, "\" (ranks share a run over several GPUs)", place);
}

void ExperimentConfig::check_ranks(const config::Table& table) const {
  const auto allowed = concat("1 .. lora.rank = ", lora.rank);
  check_each(table, "ranks", clients.ranks, [&](const auto& at, auto key, int64_t rank) {
    at.check_entry(rank >= 1 && rank <= lora.rank, key, rank, allowed);
  });
  for (size_t i = 0; i < clients.client.size(); ++i) {
    const int64_t rank = clients.client[i].rank.value_or(1);
    EK_CHECK(rank >= 1 && rank <= lora.rank, kConfig, table.full_key("client"), "[", i, "].rank of ",
             clients.who(static_cast<int64_t>(i)), " is ", rank, ", allowed: ", allowed,
             table.tables("client")[i].place_of("rank"));
  }
}

/// Checks that every client or none has a profile, and that all profiles exist.
void ExperimentConfig::check_machines(const config::Table& table) const {
  std::vector<std::string_view> known;
  for (const auto& [name, profile] : client_profiles.profiles) known.push_back(name);
  const auto allowed = known.empty() ? std::string("names of [client_profiles], which holds none") : join(known);
  const auto check = [&](const auto& at, std::string_view key, const std::string& name) {
    at.check_entry(contains(known, name), key, in_quotes(name), allowed);
  };
  check_each(table, "profiles", clients.profiles, check);
  const bool for_all = !clients.profiles.numbers().empty();
  bool any = for_all;
  for (const auto& client : clients.client) any = any || client.profile;
  for (size_t i = 0; i < clients.client.size(); ++i) {
    const auto& own = clients.client[i].profile;
    if (own) check(table.tables("client")[i], "profile", *own);
    EK_CHECK(own || for_all || !any, kConfig, table.full_key("client"), ": ", clients.who(static_cast<int64_t>(i)),
             " has no profile, allowed: one for every client, or for none", table.place_of("client"));
  }
  table.check(any || known.empty(), "profiles", "empty", concat("who has which of [client_profiles], ", join(known)));
}

/// Checks keys that exclude clients with own rows, and keys that require them.
void ExperimentConfig::check_own_rows(const config::Table& table) const {
  if (clients.own_rows()) {
    const auto of_data = table.table("data");
    const std::string why = "where every [[clients.client]] brings rows of its own";
    of_data.check(data.task == config::Names("files"), "task", in_quotes(join(data.task)), concat("files, ", why));
    of_data.check(data.files.train.empty() && data.files.test.empty() && data.files.sets.empty(), "files",
                  "naming files", concat("format, score and the like, ", why));
    of_data.table("partition")
        .check(data.partition.kind == PartitionKind::kIid, "kind", in_quotes(config::name_of(data.partition.kind)),
               concat("nothing else than iid, which deals out nothing ", why));
  }
  bool tested = false;
  for (int64_t id = 0; clients.own_rows() && id < clients.count; ++id) tested = tested || has_test_rows(id);
  table.table("evaluate")
      .check(!evaluate.per_client || tested, "per_client", "true",
             "where clients have test rows of their own: [[clients.client]] with data, and test or "
             "held_out");
}

std::vector<std::string> ExperimentConfig::tasks_here() const {
  auto tasks = evaluate.tasks;
  if (clients.rows_elsewhere())
    std::erase_if(tasks, [from = data.rows()](const auto& task) { return find_task(task, from).family == "files"; });
  return tasks;
}

bool ExperimentConfig::has_test_rows(int64_t client) const {
  const auto& own = clients.client.at(static_cast<size_t>(client));
  return !own.test.empty() || own.held_out.value_or(data.files.held_out) > 0;
}

/// Copies clients' own files into data.files.clients, with the other keys of `[data.files]`.
void ExperimentConfig::give_files() {
  data.files.clients.clear();
  for (size_t i = 0; clients.own_rows() && i < clients.client.size(); ++i) {
    const auto& own = clients.client[i];
    auto& files = data.files.clients.emplace_back(ClientFiles{data.files, clients.who(static_cast<int64_t>(i))});
    files.train = own.data;
    files.test = own.test;
    if (own.held_out) files.held_out = *own.held_out;
  }
}

void ExperimentConfig::find_files() {
  data.files.find_files();
  change_files(clients, [](std::vector<std::string>& patterns) { patterns = found_files(patterns); });
  give_files();
}

RowOptions ExperimentConfig::own_rows(int64_t client, int64_t limit) const {
  auto options = data.rows(limit, static_cast<uint64_t>(seed));
  options.files.clients = {data.files.clients.at(static_cast<size_t>(client))};
  return options;
}

RowOptions ExperimentConfig::rows_to_score(std::optional<int64_t> own_of, int64_t limit) const {
  return own_of ? own_rows(*own_of, limit) : data.rows(limit, static_cast<uint64_t>(seed));
}

bool ExperimentConfig::evaluates_after(int64_t round) const {
  if (round == 0) return evaluate.before;
  return round == train.rounds || (evaluate.every > 0 && round % evaluate.every == 0);
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
  for (const auto& renamed : rename_keys(table)) log::warning("[config] ", renamed);
  return read(table);
}

void ExperimentConfig::settle(const MachineChoices& machine) {
  if (threads == 0) threads = std::max<int64_t>(1, machine.threads / clients.parallel);
  model.settle(machine);
  check_parallel("");
  settle_budgets();
  lora.init = expand_data_path(lora.init, "lora.init").string();
  data.path = expand_data_path(data.path, "data.path").string();
  data.chat_template = expand_data_path(data.chat_template, "data.chat_template").string();
  data.date = jinja::Date::settled(data.date);
  data.files.expand_paths();
  change_files(clients, [](std::vector<std::string>& patterns) {
    for (auto& pattern : patterns) pattern = expand_data_path(pattern, "`data` or `test`").string();
  });
  give_files();
  auto& bert = evaluate.bert_score;
  bert.encoder = expand_data_path(bert.encoder, "evaluate.bert_score.encoder").string();
  bert.baseline = expand_data_path(bert.baseline, "evaluate.bert_score.baseline").string();
  if (evaluate.tasks.empty()) evaluate.tasks = data.task;
  evaluate.tasks = expand_tasks(evaluate.tasks, data.rows());
  output.dir = folder().string();
  settle_ranks();
  settle_machines();
}

/// Settles budgets. A pattern stays a pattern, which keeps the text short, unless single clients have own budgets.
void ExperimentConfig::settle_budgets() {
  auto& budgets = clients.budgets;
  if (!budgets.listed() && clients.client.empty()) return;
  auto all = client_budgets();
  for (size_t i = all.size(); i < static_cast<size_t>(clients.count); ++i) all.push_back(kBudgets[i % kBudgets.size()]);
  put_own(clients.client, &ClientSection::budget, all);
  budgets = {.list = std::move(all)};
}

/// Settles ranks. If none are given, they follow the budgets and have the same form (list or pattern).
void ExperimentConfig::settle_ranks() {
  auto& ranks = clients.ranks;
  const auto& budgets = clients.budgets;
  const auto rank_of = [&](const std::vector<double>& of) {
    std::vector<int64_t> all;
    for (const double budget : of) all.push_back(method.entry().rank(budget, lora.rank));
    return all;
  };
  if (ranks.numbers().empty())
    ranks = {.list = rank_of(budgets.list),
             .values = rank_of(budgets.values),
             .shares = budgets.shares,
             .deal = budgets.deal};
  if (clients.client.empty()) return;
  auto all = client_ranks();
  put_own(clients.client, &ClientSection::rank, all);
  ranks = {.list = std::move(all)};
}

void ExperimentConfig::settle_machines() {
  const auto says = [](const ClientSection& client) { return client.profile.has_value(); };
  if (std::none_of(clients.client.begin(), clients.client.end(), says)) return;
  auto all = machine_names();
  all.resize(static_cast<size_t>(clients.count));
  put_own(clients.client, &ClientSection::profile, all);
  clients.profiles = {.list = std::move(all)};
}

std::vector<double> ExperimentConfig::client_budgets() const {
  return clients.budgets.of(clients.count, static_cast<uint64_t>(seed));
}

std::vector<int64_t> ExperimentConfig::client_ranks() const {
  return clients.ranks.of(clients.count, static_cast<uint64_t>(seed));
}

std::vector<std::string> ExperimentConfig::machine_names() const {
  return clients.profiles.of(clients.count, static_cast<uint64_t>(seed));
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
