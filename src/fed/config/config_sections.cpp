// The sections of a run's config: checks of their keys, and what follows from one section alone.
#include <algorithm>
#include <array>
#include <map>

#include "base/plain/files.h"
#include "base/plain/key_fingerprint.h"
#include "base/plain/text.h"
#include "fed/config/experiment_config.h"
#include "fed/config/sampling.h"
#include "fed/config/value_checks.h"

namespace evenkeel::fed {
namespace {

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void check_weight_shares(const config::Table& table, std::string_view key, std::span<const double> shares) {
  for (const double share : shares) table.check_share(key, share);
}

/// Checks that no value is there twice. \param values  a copy, which is sorted
template <typename T>
void check_each_once(const config::Table& table, std::string_view key, std::vector<T> values) {
  std::sort(values.begin(), values.end());
  const auto twice = std::adjacent_find(values.begin(), values.end());
  if (twice != values.end()) table.check_entry(false, key, concat(*twice, " twice"), "every value once");
}

/// Checks that a list has one value per client.
template <typename T>
void check_length(const config::Table& table, std::string_view key, const PerClient<T>& numbers, int64_t clients) {
  const size_t length = numbers.list.size();
  EK_CHECK(length == 0 || length == static_cast<size_t>(clients), kConfig, table.full_key(key), " has ", length,
           " entries, clients.count is ", clients, ": one entry per client is needed", table.place_of(key));
}

/// Returns true if `name` can be shown in lines and tables.
bool is_plain(std::string_view name) { return name.size() <= 64 && escaped(name) == name; }

/// Checks that no two clients have the same value of a key, where they have one.
/// \param why  the reason, for the message
void check_distinct(const config::Table& table, std::span<const ClientSection> clients, const char* key,
                    std::string ClientSection::*value, std::string_view why) {
  std::map<std::string_view, size_t> seen;
  for (size_t i = 0; i < clients.size(); ++i) {
    const auto& own = clients[i].*value;
    if (own.empty()) continue;
    const auto [first, is_new] = seen.emplace(own, i);
    EK_CHECK(is_new, kConfig, table.full_key("client"), "[", i, "] has the ", key, ' ', in_quotes(own), ", as has [",
             first->second, "]: ", why, table.tables("client")[i].place_of(key));
  }
}

/// Returns the number of clients that are left when all whose `until` is `round` or less have gone.
int64_t left_after(const ClientsSection& clients, int64_t round) {
  const auto gone = std::count_if(clients.client.begin(), clients.client.end(),
                                  [round](const ClientSection& one) { return one.until && *one.until <= round; });
  return clients.count - gone;
}

/// Checks that the quorum is reached by those who take part, also after clients are left out.
void check_those_left(const config::Table& table, const ClientsSection& clients) {
  for (const auto& one : clients.client) {
    if (!one.until) continue;
    const int64_t left = left_after(clients, *one.until);
    EK_CHECK(left > 0 && drawn_clients(left, clients.participation) >= clients.quorum, kConfig,
             table.full_key("client"), ": until = ", *one.until, " leaves ", left, " clients in round ", *one.until + 1,
             ", of whom ", left > 0 ? drawn_clients(left, clients.participation) : 0,
             " are drawn; allowed: as many as clients.quorum = ", clients.quorum, " or more", table.place_of("client"));
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

std::vector<std::string_view> method_names() {
  std::vector<std::string_view> names;
  for (const auto& entry : methods::methods())
    if (!contains(names, entry.name)) names.push_back(entry.name);
  return names;
}

/// Returns the registry entry of the method that `[method] name` selects. \throws kConfig
const methods::MethodEntry& named_method(std::string_view name, const config::Table& table) {
  table.check(contains(method_names(), name), "name", in_quotes(name),
              concat(join(method_names()), ", or by --method FILE.py:CLASS one in Python"));
  return methods::find_method(name);
}

/// Returns the registry entry of the method with a table under `key`. \throws kConfig
const methods::MethodEntry& method_of_table(std::string_view key, const config::Table& table) {
  EK_CHECK(contains(method_names(), key), kConfig, shown(table.full_key(key), 120), " is not a known key",
           table.place_of(key), "; known: name, gate_norm, and of methods: ", join(method_names()));
  return methods::find_method(key);
}

/// Writes one method's table inside `[method]`.
struct MethodKeys {
  const methods::MethodEntry* entry;
  const config::Table* table;
  void visit(config::Writer& writer) { entry->write(*table, writer); }
  void visit(config::ValueLister& lister) { entry->list(*table, lister); }
};

/// The keys of `[method]` other than methods' tables.
struct MethodChoice {
  std::string& name;
  nn::GateNorm& gate_norm;
  void visit(auto& field) {
    field("name", name, "method (evenkeel list methods)");
    field("gate_norm", gate_norm,
          "weights of the selected experts: olmoe_native (as the checkpoint), renorm_selected or softmax_all; the "
          "default depends on the method");
  }
};

/// Lists or writes the keys of `[method]`, then the tables of the methods.
void visit_keys(MethodSection& section, auto& visitor) {
  MethodChoice{section.name, section.gate_norm}.visit(visitor);
  for (const auto& [entry, table] : section.tables) visitor.nested(entry->name, MethodKeys{entry, &table});
}

}  // namespace

void LoraSection::resolve(const config::Table& table) const {
  lora::LoraScale::resolve(table);
  table.check(!targets.empty() || router_lora, "targets", "empty", "one module name or more");
  if (!init.empty()) check_path_text(init, table.full_key("init"));
}

lora::Sites LoraSection::sites(const models::CausalLm& model) const {
  auto chosen = model.sites(targets);
  for (const auto& [name, site] : chosen)
    EK_CHECK(site.role != lora::SiteRole::kRouter, kConfig, "lora.targets names ", name.substr(name.rfind('.') + 1),
             ", the router: say lora.router_lora = true or false instead");
  for (const auto& [name, site] : model.all_sites())
    if (router_lora && site.role == lora::SiteRole::kRouter) chosen.emplace(name, site);
  return chosen;
}

void DataSection::resolve(const config::Table& table) const {
  data::TokenizeOptions::resolve(table);
  table.check_integer("limit", limit, 0, limits::kRows);
  for (const auto& name : task) check_family(name, table);
  check_each_once<std::string>(table, "task", task);
  if (!date.empty()) {
    jinja::Date::read(jinja::Date::settled(date), table.full_key("date"));
    table.check(form == data::PromptTemplate::kChat, "date", "given", "with template = \"chat\" only");
  }
  if (chat_template.empty()) return;
  check_path_text(chat_template, table.full_key("chat_template"));
  table.check(form == data::PromptTemplate::kChat, "chat_template", "given", "with template = \"chat\" only");
}

void DataSection::check_family(const std::string& name, const config::Table& table) const {
  const auto known = data::families();
  table.check(contains(known, name), "task", in_quotes(name), join(known));
  const auto& family = data::find_task_family(name);
  table.check(!family.in_folder || !path.empty(), "path", "empty", concat("the folder of the files of ", name));
  table.table("partition")
      .check(!partition.grouped() || contains(family.label_keys, partition.key), "key", in_quotes(partition.key),
             concat("what the rows of ", name, " have: ", join(family.label_keys)));
}

data::TokenizeOptions DataSection::tokenize_options(int64_t eos_id) const {
  data::TokenizeOptions options = *this;
  options.eos = eos_id;
  return options;
}

void ClientSection::resolve(const config::Table& table) const {
  const std::string of = name.empty() ? "" : concat(" of ", in_quotes(name));
  EK_CHECK(is_plain(name), kConfig, table.full_key("name"), " is ", in_quotes(shown(name)),
           ", allowed: up to 64 bytes of printable text", table.place_of("name"));
  EK_CHECK(
      key.empty() || is_key_fingerprint(key), kConfig, table.full_key("key"), of, " is ", in_quotes(shown(key)),
      ", allowed: the SHA-256 fingerprint of a key, SHA256: and 43 letters and digits, as evenkeel keygen prints it",
      table.place_of("key"));
  if (until) table.check_integer("until", *until, 0, limits::kSteps);
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
  table.check_from_zero("update_ratio", update_ratio);
  table.check(update_ratio == 0 || update_ratio >= 1, "update_ratio", update_ratio, "0, or 1 or more");
  const int64_t drawn = drawn_clients(count, participation);
  table.check(quorum >= 1 && quorum <= drawn, "quorum", quorum,
              concat("1 .. ", drawn, ", the clients drawn per round"));
  const int64_t at_first = drawn_at_first();
  table.check(start >= 0 && start <= count && at_first >= quorum, "start", start,
              concat("0, or up to clients.count = ", count, " and enough to draw clients.quorum = ", quorum));
  check_each(table, "budgets", budgets, [](const auto& at, auto key, double share) { at.check_share(key, share); });
  check_distinct(table, client, "name", &ClientSection::name, "names tell clients apart");
  check_distinct(table, client, "key", &ClientSection::key, "a key is one client");
  check_those_left(table, *this);
  check_all_or_none(table, *this);
}

int64_t ClientsSection::drawn_at_first() const {
  return drawn_clients(start > 0 ? std::min(start, count) : count, participation);
}

int64_t ClientsSection::fewest_drawn() const {
  int64_t fewest = drawn_at_first();
  for (const auto& one : client)
    if (one.until) fewest = std::min(fewest, drawn_clients(left_after(*this, *one.until), participation));
  return fewest;
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

std::string ClientsSection::key(int64_t id) const {
  const auto i = static_cast<size_t>(id);
  return id >= 0 && i < client.size() ? client[i].key : std::string();
}

std::optional<int64_t> ClientsSection::until(int64_t id) const {
  const auto i = static_cast<size_t>(id);
  return id >= 0 && i < client.size() ? client[i].until : std::nullopt;
}

std::string ClientsSection::who(int64_t id) const {
  const auto known = name(id);
  return known ? concat("client ", id, " (", *known, ")") : concat("client ", id);
}

void TrainSection::resolve(const config::Table& table) const {
  train::LocalTraining::resolve(table);
  table.check_integer("rounds", rounds, 1, limits::kSteps);
  table.table("schedule")
      .check(schedule.warmup <= rounds, "warmup_rounds", schedule.warmup, concat("0 .. train.rounds = ", rounds));
}

void BertScoreSection::resolve(const config::Table& table) const {
  scoring::BertScoreOptions::resolve(table);
  table.check(!encoder.empty() || (layer < 0 && !idf && baseline.empty()), "encoder", "empty",
              "the encoder that layer, idf and baseline are settings of");
}

void EvaluateSection::resolve(const config::Table& table) const {
  scoring::EvaluationOptions::resolve(table);
  table.check(!budgets.empty(), "budgets", "empty", "one budget or more");
  check_weight_shares(table, "budgets", budgets);
  check_each_once(table, "budgets", std::vector<double>(budgets));
  check_each_once(table, "rank_eval_modes", std::vector<std::string>(rank_eval_modes));
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
    const methods::MethodEntry& entry = method_of_table(key, table);
    entry.make(table.table(key));
    section.tables.emplace_back(&entry, table.table(key));
  }
  return section;
}

std::unique_ptr<methods::FederatedMethod> MethodSection::make() const {
  for (const auto& [entry, table] : tables)
    if (entry->name == name) return entry->make(table);
  fail(kInternal, "method ", name, " has no table");
}

void MethodSection::visit(config::Writer& writer) { visit_keys(*this, writer); }
void MethodSection::visit(config::ValueLister& lister) { visit_keys(*this, lister); }

}  // namespace evenkeel::fed
