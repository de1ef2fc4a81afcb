#include "flower/federation/serve.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/plain/os_error.h"
#include "fed/config/arithmetic.h"
#include "fed/config/client_rows.h"
#include "fed/config/config_paths.h"
#include "fed/round/starting_adapter.h"
#include "fed/run/make_experiment.h"
#include "fed/run/new_run_folder.h"
#include "fed/run/state_evaluation.h"
#include "fed/run/training_run.h"
#include "fed/store/audit_summary.h"
#include "fed/store/run_files.h"
#include "flower/federation/agreed_terms.h"
#include "flower/federation/placement.h"
#include "flower/federation/served_experiment.h"

namespace evenkeel::flower {
namespace {

constexpr std::string_view kFolder = fed::run_file("federation"), kMembers = "members.json";

/// Replaces the budgets of the config by those that the nodes accepted.
fed::RunConfig with_accepted_budgets(const fed::RunConfig& config, const Roster& roster) {
  std::map<int64_t, double> changed;
  for (const auto& [id, member] : roster.members())
    if (config.plan(id).budget != member.budget) changed.emplace(id, member.budget);
  return with_budgets(config, changed);
}

/// Returns the last event of kind kAdapter of each client, by client.
std::map<int64_t, fed::AuditEvent> recorded_adapters(const fs::path& audit) {
  std::map<int64_t, fed::AuditEvent> last;
  fed::read_audit(audit, [&](const fed::AuditLine& line) {
    if (line.event.kind == fed::AuditKind::kAdapter && line.event.client) last[*line.event.client] = line.event;
  });
  return last;
}

/// A run with its folder, its server and its evaluator.
struct Served {
  fed::Experiment experiment;
  fed::RunFolder folder;
};

class Serving {
 public:
  Serving(const ServeOptions& options, const fs::path& folder, Grid& grid)
      : options_(options),
        grid_(grid),
        roster_(folder / kMembers),
        audit_(folder / fed::kAuditFile),
        fabric_(grid, roster_, folder / "arriving") {
    fabric_.record_in(audit_);
    status_.work = fed::summary_of(folder / fed::kAuditFile);
    fabric_.report_to([this](const fed::AuditEvent& event) { on_reply(event); });
    fabric_.on_round([this](int64_t round) { on_round(round); });
  }

  /// Records the beginning of this process, calls `work`, which ends in play(), and records the reason if it fails.
  template <typename Work>
  auto recorded(fed::AuditKind kind, const Work& work) {
    audit_.add({.kind = kind, .name = "server", .run = roster_.run(), .outcome = concat("evenkeel ", version())});
    try {
      return work();
    } catch (const Interrupted& interrupted) {
      stopped(interrupted.what());
      throw;
    } catch (const Error& error) {
      stopped(error.what());
      throw;
    }
  }

  /// Begins a new run after its clients have joined, because the config depends on them.
  Served begin(fed::Experiment experiment, FolderLock lock, const fs::path& path, std::unique_ptr<log::File> log) {
    require_keys(experiment.server.config);
    learn_prompts(experiment.fabric.context);
    keep_waiting(experiment.server);
    gather(experiment.server);
    complete(experiment);
    auto folder = fed::RunFolder::create(path, std::move(lock), experiment.server, nullptr, options_.request,
                                         options_.request.config());
    folder.keep_log(std::move(log));
    worked_since_ = std::chrono::steady_clock::now();
    return {std::move(experiment), std::move(folder)};
  }

  Served resume(fed::Experiment experiment, fed::RunFolder folder, std::unique_ptr<log::File> log) {
    require_keys(experiment.server.config);
    learn_prompts(experiment.fabric.context);
    complete(experiment);
    // First, so that a kill in between leaves no change unrecorded.
    record_changes(folder.changes().taken(), folder.opened_round());
    folder.settle();
    folder.keep_log(std::move(log));
    return {std::move(experiment), std::move(folder)};
  }

  std::vector<scoring::TaskScore> play(Served& run) {
    auto& server = run.experiment.server;
    plays_ = true;
    fabric_.begin_rounds();
    if (server.config->secure_aggregation.mode == fed::SecureMode::kMasks) mask(server);
    run.experiment.fabric.context.answers = run.folder.answers();
    status_.rounds = server.config->train.rounds;
    status_.clients = server.config->clients.count;
    auto joins = joining(server);
    for (const auto& task : fed::client_tasks(server))
      joins.client_tasks.emplace(task, scoring::kind_of(data::find_task(task, server.config.rows()).scoring));
    joins.test_limit = server.config->evaluate.limit;
    joins.on_join = [this, &server](const Member& member) { admit(server, member); };
    joins.profile = [&server](int64_t client) -> const methods::ClientProfile& {
      return server.clients.at(static_cast<size_t>(client));
    };
    fabric_.use_terms(std::move(joins), terms(server), options_.evaluate ? &run.experiment.fabric : nullptr);
    auto scores = fed::complete_run(run.experiment.server, fabric_, run.folder, options_.stop);
    hand_out(run);
    fabric_.end_run();
    stopped("done");
    return scores;
  }

 private:
  /// Stores the chat template that every node must use.
  void learn_prompts(const fed::ClientContext& context) {
    if (context.config->data.form != data::PromptTemplate::kChat) return;
    prompts_ = {context.tokenizer.chat_templates().source(), named_tokens_digest(context.tokenizer)};
  }

  /// Takes over the clients that joined an earlier process, which ended before the first round. Those that joined with
  /// another config, model or template are not taken over.
  void keep_waiting(const fed::Server& server) {
    if (const size_t removed = roster_.offer(record::write(offer_of(server)).dump()); removed > 0)
      log::warning("[serve] ", removed,
                   " clients had joined with another config or model: their nodes are asked again");
    if (!roster_.members().empty())
      log::info("[serve] ", roster_.members().size(), " clients have joined an earlier process of this server");
  }

  void gather(const fed::Server& server) {
    const auto& config = server.config;
    status_.rounds = config->train.rounds;
    status_.clients = config->clients.count;
    fabric_.use_terms(joining(server), terms(server), nullptr);
    if (grid_.lists_all()) warn_of_absent(grid_, config->clients);
    fabric_.gather(config->clients.start > 0 ? config->clients.start : config->clients.count);
  }

  /// Completes the experiment with the budgets and row counts of the nodes, and loads the weights.
  void complete(fed::Experiment& e) {
    e.use(with_accepted_budgets(e.server.config, roster_));
    std::vector<size_t> examples(static_cast<size_t>(e.server.config->clients.count));
    for (const auto& [id, member] : roster_.members())
      examples.at(static_cast<size_t>(id)) = static_cast<size_t>(member.examples);
    e.server.clients = fed::make_clients(e.server.config, e.server.model, examples);
    e.server.clients_with_test_rows.emplace();
    for (auto& client : e.server.clients) client.first_round = std::numeric_limits<int64_t>::max();  // until it joins
    for (const auto& [id, member] : roster_.members()) admit(e.server, member);
    leave_out_what_nobody_brings(e.server);
    if (options_.evaluate) fed::load_weights(e);
  }

  /// Checks that nodes can sign for the masks of the run. \throws kConfig
  void require_keys(const fed::RunConfig& config) const {
    EK_CHECK(config->secure_aggregation.mode != fed::SecureMode::kMasks || grid_.knows_keys(), kConfig,
             "secure_aggregation.mode is \"masks\", for which nodes sign with keys that this server knows: nodes of a "
             "Flower SuperLink do not");
  }

  /// Masks the uploads of the rounds.
  void mask(const fed::Server& server) {
    fabric_.mask([&server, config = digest_of_run(offered_text(server.config))](const fed::TrainingRound& training,
                                                                                const methods::RoundView& roster) {
      auto context = server.masked_terms(training.state, roster);
      context.config = config;
      return context;
    });
  }

  /// Sends the final adapter to all nodes that do not have it by the audit log.
  void hand_out(const Served& run) {
    const auto& server = run.experiment.server;
    const auto last = run.folder.checkpoint().read();
    const auto state = last.commit.round > 0 ? last.snapshot.state : fed::initial_state(server, fabric_);
    fabric_.hand_out(
        lora::encode({.adapters = methods::whole_adapter(state)}, lora::TransportDtype::kFloat32, server.sites),
        recorded_adapters(run.folder.path() / kFolder / fed::kAuditFile));
  }

  /// Returns the terms of the run. With simulated time the deadline is applied by the round, not by the fleet.
  FleetTerms terms(const fed::Server& server) const {
    const auto& clients = server.config->clients;
    FleetTerms terms{.quorum = clients.quorum, .clients = clients.count, .patience_s = options_.patience_s};
    terms.most_upload = std::min(terms.most_upload, most_upload(server));
    if (clients.profiles.numbers().empty()) terms.deadline_s = clients.deadline;
    if (clients.most_examples > 0) terms.most_examples = clients.most_examples;
    return terms;
  }

  /// Returns the offer of the run, without the run's name and without a client.
  Offer offer_of(const fed::Server& server) {
    if (base_.empty() && options_.evaluate) base_ = model_digest(server.model_folder);
    Offer offer{.run = {}, .config = offered_text(server.config), .base = base_, .sites = sites_digest(server.sites)};
    offer.chat_template = prompts_.chat_template;
    offer.named_tokens = prompts_.named_tokens;
    offer.method = methods::digests_of(server.config->method.entry());
    return offer;
  }

  Joining joining(const fed::Server& server) {
    const auto& config = server.config;
    return {.offer =
                [this, config, offer = offer_of(server)](int64_t client) {
                  auto own = offer;
                  own.run = roster_.run();
                  own.client = client;
                  const auto known = roster_.members().find(client);
                  if (known == roster_.members().end()) {
                    if (plays_) own.budget = config.plan(client).budget;
                    return own;
                  }
                  own.budget = known->second.budget;
                  own.examples = known->second.examples;
                  own.content = known->second.content;
                  return own;
                },
            .place_of = [this, clients = config->clients](
                            const NodeInfo& node, std::span<const NodeInfo> nodes,
                            const std::set<int64_t>& taken) { return place_of(node, nodes, clients, roster_, taken); },
            .check_budget =
                [this, config, model = server.model, &entry = config->method.entry()](int64_t client, double budget) {
                  EK_CHECK(!plays_ || budget == config.plan(client).budget, kConfig, "its budget is ", budget,
                           ", but the run is under way with ", config.plan(client).budget);
                  if (entry.top_k(budget, model.top_k) == 0) fed::active_experts(model, budget, "its budget");
                },
            .on_change = config->clients.on_change,
            .tick =
                [this](int64_t members) {
                  if (std::exchange(status_.members, members) != members) tell();
                  if (options_.stop && options_.stop()) throw Interrupted("stopped while waiting for clients");
                },
            .wants_items = config->evaluate.items};
  }

  /// Makes a client take part that joined while the run was under way.
  void admit(fed::Server& server, const Member& member) {
    auto& client = server.clients.at(static_cast<size_t>(member.client));
    client.examples = static_cast<double>(member.examples);
    client.first_round = member.first_round;
    if (member.test_rows > 0 && !server.config->privacy.protects_clients())
      server.clients_with_test_rows->insert(member.client);
    note_arrival(server, member);
    status_.members = std::ssize(roster_.members());
    tell();
  }

  static void note_arrival(fed::Server& server, const Member& member) {
    if (member.assigned == "arrival" && server.config->clients.name(member.client))
      server.nodes_by_arrival[member.client] = member.name;
  }

  /// Records what the command that resumes the run has changed, after `round` rounds.
  void record_changes(const fed::RunChanges& changes, int64_t round) {
    const auto changed = [&](const std::string& what) {
      audit_.add({.kind = fed::AuditKind::kChanged, .name = "server", .round = round, .outcome = what});
    };
    if (changes.rounds) changed(concat("train.rounds is ", *changes.rounds));
    if (!changes.base.empty()) changed("the base model was moved");
    for (const auto& file : changes.files) changed(concat("another ", file.filename().string()));
    for (const auto& [key, now, before] : changes.keys.keys)
      changed(concat(key, " is ", now.value_or("not there"), ", it was ", before.value_or("not there")));
    if (!changes.admission) return;
    record_keys(fed::AuditKind::kAdmitted, changes.admission->added, round);
    record_keys(fed::AuditKind::kRevoked, changes.admission->removed, round);
  }

  /// \param keys  fingerprint and name of each, as fed::AdmissionChange has them
  void record_keys(fed::AuditKind kind, std::span<const std::string> keys, int64_t round) {
    for (const auto& key : keys) {
      const auto space = std::min(key.find(' '), key.size());
      audit_.add({.kind = kind,
                  .key = key.substr(0, space),
                  .name = key.substr(std::min(space + 1, key.size())),
                  .round = round});
    }
  }

  void stopped(const std::string& why) {
    audit_.add({.kind = fed::AuditKind::kStop, .name = "server", .outcome = why});
    log::info("[serve] last head of federation/audit.jsonl: ", audit_.head());
  }

  void on_reply(const fed::AuditEvent& event) {
    status_.work.add(event);
    tell();
  }

  /// Updates the status after `rounds` committed rounds. In a resumed run, the first call is for the rounds of the
  /// earlier process.
  void on_round(int64_t rounds) {
    const auto now = std::chrono::steady_clock::now();
    if (worked_since_) {
      status_.round_seconds.observe(std::chrono::duration<double>(now - *worked_since_).count());
      record_commit(rounds);
    }
    worked_since_ = now;
    status_.round = rounds;
    tell();
  }

  /// Records a committed round. The head of the audit log goes into the run's log as well, which others may copy.
  void record_commit(int64_t rounds) {
    audit_.add({.kind = fed::AuditKind::kRound, .name = "server", .round = rounds, .outcome = "committed"});
    log::info("[serve] round ", rounds, " is committed; head of federation/audit.jsonl: ", audit_.head());
  }

  void tell() {
    if (options_.on_status) options_.on_status(status_);
  }

  const ServeOptions& options_;
  Grid& grid_;
  Roster roster_;
  fed::AuditLog audit_;
  FleetFabric fabric_;
  FleetStatus status_;
  std::optional<std::chrono::steady_clock::time_point> worked_since_;
  bool plays_ = false;  // true: the run is under way, with the budgets of its config
  std::string base_;
  struct {
    std::string chat_template, named_tokens;
  } prompts_;  // see Offer
};

/// Returns the config of a new run.
fed::RunConfig served_config(const fed::RunRequest& request) {
  const auto asked = without_rows(request.config());
  return fed::settle(fed::with_inputs(asked), fed::machine_choices(asked));
}

/// Returns the config as a resumed run has stored it: without clients' rows, with the budgets that the nodes accepted.
fed::RunConfig as_served(const fed::RunConfig& config, const fs::path& federation) {
  const auto bare = config.with([](fed::ExperimentConfig& values) { values = without_rows(std::move(values)); });
  return with_accepted_budgets(bare, Roster(federation / kMembers));
}

using MakeGrid = std::function<std::unique_ptr<Grid>(const fs::path& folder)>;

/// Runs `play` and reports its outcome to the grid.
template <typename Play>
std::vector<scoring::TaskScore> played(Grid& grid, const fs::path& folder, const Play& play) {
  try {
    auto scores = play();
    grid.done(folder);
    return scores;
  } catch (const Error& error) {
    grid.failed(error.what());
    throw;
  }
}

std::vector<scoring::TaskScore> go_on(const ServeOptions& options, const fs::path& path, const MakeGrid& grid_in) {
  const auto federation = path / kFolder;
  auto log = std::make_unique<log::File>();
  auto folder = fed::RunFolder::open(path, options.from_round);
  EK_CHECK(!options.from_round || folder.config()->secure_aggregation.mode != fed::SecureMode::kMasks, kConfig,
           "--from-round: rounds that were summed under masks cannot be repeated, because nodes help with one sum per "
           "round; begin a new run from the adapter of round ",
           *options.from_round, " (lora.init)");
  folder.changes().take(options.request, [&](const fed::RunConfig& config) { return as_served(config, federation); });
  auto experiment = served_experiment(folder.config(), options.evaluate);
  folder.check(experiment.server, nullptr);
  const auto grid = grid_in(federation);
  return played(*grid, path, [&] {
    Serving serving(options, federation, *grid);
    return serving.recorded(fed::AuditKind::kResume, [&] {
      auto run = serving.resume(std::move(experiment), std::move(folder), std::move(log));
      return serving.play(run);
    });
  });
}

/// Begins a run. When the process ends before the first round, but after nodes could call, the folder keeps the nodes
/// and the clients that have joined, so that `--resume` waits for the rest.
std::vector<scoring::TaskScore> begin(const ServeOptions& options, const fs::path& path, const MakeGrid& grid_in) {
  auto log = std::make_unique<log::File>();
  const auto config = served_config(options.request);
  const bool was_there = path_exists(path);
  auto lock = fed::prepare_folder(path, options.resume);
  const auto federation = path / kFolder;
  std::unique_ptr<Grid> grid;
  std::optional<fed::Experiment> experiment;
  try {
    experiment = served_experiment(config, options.evaluate);
    grid = grid_in(federation);
  } catch (...) {
    if (!was_there) fed::abandon_folder(path, std::move(lock));
    throw;
  }
  return played(*grid, path, [&] {
    Serving serving(options, federation, *grid);
    return serving.recorded(fed::AuditKind::kStart, [&] {
      auto run = serving.begin(std::move(*experiment), std::move(lock), path, std::move(log));
      return serving.play(run);
    });
  });
}

}  // namespace

ServedRun serve(const ServeOptions& options,
                const std::function<std::unique_ptr<Grid>(const fs::path& folder)>& grid_in) {
  const auto& request = options.request;
  const fs::path path = request.out.empty() ? request.config().folder() : fs::path(request.out);
  const bool goes_on = options.resume && !fed::nothing_began(path);
  return {path, goes_on ? go_on(options, path, grid_in) : begin(options, path, grid_in)};
}

}  // namespace evenkeel::flower
