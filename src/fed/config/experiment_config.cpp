#include "fed/config/experiment_config.h"

#include <algorithm>

#include "fed/config/sampling.h"
#include "fed/config/value_checks.h"
#include "methods/make_rule.h"

namespace evenkeel::fed {
namespace {

template <typename T>
bool is_among(const T& value, const std::vector<T>& list) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

/// Returns the files of clients that bring their own, with the other keys of `[data.files]`.
std::vector<data::ClientFiles> files_of_clients(const ExperimentConfig& config) {
  std::vector<data::ClientFiles> all;
  if (!config.clients.own_rows()) return all;
  for (const auto& own : config.clients.client) {
    auto& files =
        all.emplace_back(data::ClientFiles{config.data.files, config.clients.who(static_cast<int64_t>(all.size()))});
    files.train = own.data;
    files.test = own.test;
    files.held_out = own.held_out.value_or(files.held_out);
  }
  return all;
}

}  // namespace

ExperimentConfig ExperimentConfig::read(const config::Table& table) {
  constexpr std::array<std::string_view, 2> kReadApart = {"method", "cluster"};
  ExperimentConfig config;
  config::read(table, config, kReadApart);
  config.method = MethodSection::read(table.table("method"));
  methods::check_rule(config.aggregation, config.method.entry(), config.clients.fewest_drawn(),
                      table.table("aggregation"));
  config.check_privacy(table);
  config.check_secure_aggregation(table);
  return config;
}

void ExperimentConfig::resolve(const config::Table& table) {
  const bool plain_name = !name.empty() && name.find('/') == std::string::npos && name[0] != '.';
  table.check(plain_name, "name", in_quotes(name), "a file name without /, not starting with a dot");
  table.check_integer("seed", seed, 0, limits::kAny);
  table.check_integer("threads", threads, 0, limits::kThreads);
  expand_home_in_paths();
  check_parallel(table.table("clients").place_of("parallel"));
  check_ranks(table.table("clients"));
  check_machines(table.table("clients"));
  check_own_rows(table);
  const bool of_files = std::count(data.task.begin(), data.task.end(), "files") > 0;
  table.table("data").check(!of_files || !rows().files.by_task().empty(), "files", "empty",
                            "files of rows: data.files.train, or `data` of every [[clients.client]]");
  check_tasks(table.table("evaluate"));
  check_best(table);
}

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
    at.check_entry(is_among<std::string_view>(name, known), key, in_quotes(name), allowed);
  };
  check_each(table, "profiles", clients.profiles, check);
  const bool for_all = !clients.profiles.numbers().empty();
  bool any = for_all;
  for (const auto& client : clients.client) any = any || client.profile;
  const auto tables = clients.client.empty() ? std::vector<config::Table>() : table.tables("client");
  for (size_t i = 0; i < clients.client.size(); ++i) {
    const auto& own = clients.client[i].profile;
    if (own) check(tables[i], "profile", *own);
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
        .check(data.partition.kind == data::PartitionKind::kIid, "kind",
               in_quotes(config::name_of(data.partition.kind)),
               concat("nothing else than iid, which deals out nothing ", why));
  }
  const auto own = files_of_clients(*this);
  const bool tested = std::any_of(own.begin(), own.end(), [](const auto& files) { return files.tests(); });
  table.table("evaluate")
      .check(!evaluate.per_client || tested, "per_client", "true",
             "where clients have test rows of their own: [[clients.client]] with data, and test or "
             "held_out");
}

data::RowOptions ExperimentConfig::rows(int64_t limit) const {
  data::RowOptions options{.path = data.path,
                           .limit = limit,
                           .seed = static_cast<uint64_t>(seed),
                           .label = data.partition.grouped() ? data.partition.key : "label",
                           .telequad = data.telequad,
                           .files = data.files,
                           .form = data.form};
  options.files.clients = files_of_clients(*this);
  return options;
}

bool ExperimentConfig::evaluates_after(int64_t round) const {
  if (round == 0) return evaluate.before;
  return round == train.rounds || (evaluate.every > 0 && round % evaluate.every == 0);
}

void ExperimentConfig::check_tasks(const config::Table& table) const {
  const auto check = [&](const config::Table& at, const std::vector<std::string>& names) {
    try {
      data::expand_tasks(names, rows());
    } catch (const Error& error) {
      throw error.with_context(concat(at.full_key("tasks"), at.place_of("tasks")));
    }
  };
  check(table, evaluate.tasks);
  check(table.table("best"), evaluate.best.tasks);
}

/// Checks that a run that looks for its best round scores some before the last, at the budget that is to be compared.
void ExperimentConfig::check_best(const config::Table& table) const {
  const auto of_evaluate = table.table("evaluate"), of_best = of_evaluate.table("best");
  const bool between = evaluate.every > 0 && evaluate.every < train.rounds;
  const auto needs = concat("where evaluate.every is ", evaluate.every, " and train.rounds ", train.rounds,
                            ": rounds before the last have to be scored");
  table.table("train").table("stop").check(between || train.stop.patience == 0, "patience", train.stop.patience,
                                           concat("0, ", needs));
  of_evaluate.check(between || !evaluate.keep_best, "keep_best", "true", concat("false, ", needs));
  const auto& best = evaluate.best;
  constexpr std::string_view kUnused = "with evaluate.keep_best or train.stop.patience only";
  of_best.check(best.measure == BestSection().measure || seeks_best(), "measure", "given", kUnused);
  of_best.check(best.budget == 0 || seeks_best(), "budget", "given", kUnused);
  of_best.check(best.tasks.empty() || seeks_best(), "tasks", "given", kUnused);
  of_best.check(best.budget == 0 || is_among(best.budget, evaluate.budgets), "budget", best.budget,
                concat("0, or one of evaluate.budgets: ", join(evaluate.budgets)));
  const auto needs_of_measure = scoring::measure_of(best.measure).needs;
  of_best.check(needs_of_measure != scoring::MeasureNeeds::kLikelihood || evaluate.likelihood || !seeks_best(),
                "measure", in_quotes(config::name_of(best.measure)), "another, where evaluate.likelihood is false");
  of_best.check(needs_of_measure != scoring::MeasureNeeds::kEncoder || !evaluate.bert_score.encoder.empty(), "measure",
                in_quotes(config::name_of(best.measure)), "another, where evaluate.bert_score.encoder is empty");
}

ExperimentConfig ExperimentConfig::load(const std::filesystem::path& file, std::span<const std::string> settings) {
  auto table = config::Table::load(file);
  for (const auto& setting : settings) table.set(setting);
  return read(table);
}

std::string ExperimentConfig::text(bool comments) const {
  config::Writer writer;
  ExperimentConfig copy = *this;
  copy.visit(writer);
  writer.nested("method", method);
  return writer.text(comments);
}

config::Values ExperimentConfig::values() const {
  config::Values all;
  config::ValueLister lister(all);
  ExperimentConfig copy = *this;
  copy.visit(lister);
  lister.nested("method", method);
  return all;
}

std::filesystem::path ExperimentConfig::folder() const {
  return output.dir.empty() ? std::filesystem::path("runs") / name : std::filesystem::path(output.dir);
}

}  // namespace evenkeel::fed
