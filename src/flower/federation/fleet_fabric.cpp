#include "flower/federation/fleet_fabric.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/plain/text.h"
#include "fed/exchange/merged_score.h"
#include "flower/federation/arrivals.h"
#include "flower/federation/kept_payloads.h"
#include "flower/federation/sessions.h"

namespace evenkeel::flower {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kTick = std::chrono::seconds(1);
constexpr auto kSignOff = std::chrono::seconds(3);  // for which those who leave now are heard
constexpr auto kLook = std::chrono::milliseconds(100);

}  // namespace

FleetFabric::FleetFabric(Grid& grid, Roster& roster, fs::path folder)
    : fleet_{.grid = grid, .roster = roster, .folder = std::move(folder)},
      gathering_(fleet_),
      masked_(fleet_, fleet_.folder.parent_path()) {
  remove_arrivals(fleet_.folder);
  fleet_.attend = [this] { gathering_.attend(); };
  fleet_.on_other = [this](const Arrival& arrival) { gathering_.on_reply(arrival); };
}

void FleetFabric::use_terms(Joining joining, const FleetTerms& terms, Fabric* evaluator) {
  fleet_.joining = std::move(joining);
  fleet_.terms = terms;
  evaluator_ = evaluator;
}

void FleetFabric::gather(int64_t clients) {
  const auto members = [this] { return static_cast<int64_t>(fleet_.roster.members().size()); };
  gathering_.attend();  // keys may have changed since an earlier process of this server
  gathering_.drop_barred();
  while (members() < clients) {
    gathering_.attend();
    if (const auto arrival = fleet_.grid.wait(Clock::now() + kTick)) gathering_.on_reply(*arrival);
    gathering_.drop_barred();
    fleet_.joining.tick(members());
  }
}

void FleetFabric::begin_rounds() { fleet_.rounds = 0; }

bool FleetFabric::is_left_out(int64_t client) const {
  const auto& profile = fleet_.joining.profile;
  return profile && fleet_.rounds.value_or(0) > profile(client).end_round;
}

void FleetFabric::hand_out(const lora::EncodedPayload& adapter, const std::map<int64_t, fed::AuditEvent>& recorded) {
  const auto has_it = [&, digest = payload_digest(adapter.bytes)](const Member& member) {
    const auto event = recorded.find(member.client);
    return event != recorded.end() && event->second.key == member.key && event->second.digest == digest;
  };
  std::set<int64_t> without;
  std::vector<std::string> have_it;
  for (const auto& [client, member] : fleet_.roster.members()) {
    if (is_left_out(client)) continue;
    if (has_it(member))
      have_it.push_back(member.name);
    else
      without.insert(client);
  }
  if (!have_it.empty())
    log::info("[serve] nodes that have the final adapter by the audit log are not sent it again (to one that lost it, ",
              "copy adapter/ of the run folder): ", join(have_it));
  fed::Exchange nothing;
  nothing.on_lost = [](int64_t, const std::string&) {};
  Sessions sessions(fleet_, nothing);
  for (const int64_t client : without)
    sessions.bring({.id = client}, adapter, [&without, client] { without.erase(client); });
  sessions.run();
  for (const int64_t client : without) {
    const auto& member = fleet_.roster.members().at(client);
    fleet_.record({.kind = fed::AuditKind::kAdapter,
                   .key = member.key,
                   .name = member.name,
                   .client = client,
                   .outcome = "the node has not taken the final adapter"});
    log::warning("[serve] ", member.name, " has not taken the final adapter: copy it from the run folder (adapter/)");
  }
}

bool FleetFabric::share(const methods::ServerState& state) {
  fleet_.rounds = state.round;
  masked_.committed(state.round);
  if (on_round_) on_round_(state.round);
  return false;
}

std::string FleetFabric::note_left_out(int64_t round, int64_t client, const std::string& why, double moved) {
  const auto& member = fleet_.roster.members().at(client);
  fleet_.record({.kind = fed::AuditKind::kBound,
                 .key = member.key,
                 .name = member.name,
                 .client = client,
                 .round = round,
                 .work = fed::AuditWork::kTrain,
                 .outcome = concat("left out: ", why),
                 .moved = moved});
  return member.name;
}

void FleetFabric::end_run() {
  fed::Exchange nothing;
  nothing.on_lost = [](int64_t, const std::string&) {};
  Sessions sessions(fleet_, nothing);
  for (const auto& [client, member] : fleet_.roster.members()) sessions.send_shutdown({.id = client});
  sessions.run();
  const auto end = Clock::now() + kSignOff;
  const auto online = [](const NodeInfo& node) { return node.online; };
  for (auto nodes = fleet_.grid.nodes(); std::any_of(nodes.begin(), nodes.end(), online) && Clock::now() < end;
       nodes = fleet_.grid.nodes())
    fleet_.grid.wait(Clock::now() + kLook);
}

void FleetFabric::announce(std::span<const methods::ClientProfile> clients, const fed::StateUpdate& news) {
  if (news.whole) {
    fleet_.has_shared_state = news.payload.size() > 0;
    fleet_.informed.clear();
  }
  if (evaluator_) evaluator_->announce(clients, news);
  if (news.whole) return;
  if (news.payload.size() > 0) fleet_.has_shared_state = true;
  fed::Exchange nothing;
  nothing.on_lost = [](int64_t, const std::string&) {};
  Sessions sessions(fleet_, nothing);
  for (const auto& client : clients)
    if (fleet_.informed.contains(client.id)) sessions.tell(client, news);
  sessions.run();
}

void FleetFabric::exchange(std::span<const methods::ClientProfile> clients, const fed::Exchange& exchange) {
  std::map<int64_t, fed::Task> asked;
  fed::Exchange checked = exchange;
  if (!exchange.check) {
    checked.task_of = [&](const methods::ClientProfile& client) { return asked[client.id] = exchange.task_of(client); };
    checked.check = [&](const methods::ClientProfile& client, const fed::Reply& reply) {
      check_answer(asked.at(client.id), reply);
      return std::nullopt;
    };
  }
  const auto trains = [](const methods::ClientProfile& client) { return client.trains; };
  const bool training = std::any_of(clients.begin(), clients.end(), trains);
  if (training) fleet_.late.clear();
  if (exchange.training && masked_.is_on()) return masked_.exchange(clients, checked);
  Sessions sessions(fleet_, checked, !training);
  for (const auto& client : clients) {
    EK_CHECK(client.id != fed::kPooledData, kConfig,
             "nobody holds the rows of all clients here: method.fed-sb.init = \"federated\" ", "asks each for its own");
    if (client.id != fed::kEvaluator) {
      sessions.begin(client);
      continue;
    }
    score(exchange.task_of(client), exchange);
  }
  sessions.run();
}

std::optional<fed::UnmaskedSum> FleetFabric::unmasked(const methods::RoundView& round,
                                                      std::span<const methods::ClientUpdate> updates) {
  return masked_.is_on() ? std::optional(masked_.sum(round, updates)) : std::nullopt;
}

void FleetFabric::check_answer(const fed::Task& asked, const fed::Reply& reply) const {
  const auto* ask = std::get_if<fed::Score>(&asked.ask);
  if (!ask) return;
  const auto kind = fleet_.joining.client_tasks.find(ask->task);
  EK_CHECK(kind != fleet_.joining.client_tasks.end(), kInternal, ask->task, " is no task of clients");
  int64_t rows = fleet_.roster.members().at(reply.client).test_rows;
  if (fleet_.joining.test_limit > 0) rows = std::min(rows, fleet_.joining.test_limit);
  fed::check_score(fed::report_of<fed::Scored>(reply), asked, kind->second, rows);
}

/// Scores a task: by the clients if their rows are scored, otherwise by the evaluator of this process.
void FleetFabric::score(const fed::Task& task, const fed::Exchange& exchange) {
  if (fleet_.joining.client_tasks.contains(std::get<fed::Score>(task.ask).task))
    return score_by_clients(task, exchange);
  EK_CHECK(evaluator_, kConfig, "this server has no weights to evaluate with");
  auto made = exchange;
  made.task_of = [&](const methods::ClientProfile&) { return task; };
  evaluator_->exchange(std::span(&task.client, 1), made);
}

/// Merges the scores of the clients that reply. Without any reply there is no score.
void FleetFabric::score_by_clients(const fed::Task& task, const fed::Exchange& exchange) {
  const auto shares = shares_of(task);
  const auto silent = report_nodes_without_scores(exchange);
  std::map<int64_t, fed::Scored> replies;  // by client: sums do not depend on who is first
  auto missing = silent;
  fed::Exchange asked{.task_of = [&](const methods::ClientProfile& client) { return shares.at(client.id); },
                      .on_reply = [&](fed::Reply reply) { replies[reply.client] = fed::report_of<fed::Scored>(reply); },
                      .on_progress = exchange.on_progress,
                      .full_sync = exchange.full_sync,
                      .check =
                          [&](const methods::ClientProfile& client, const fed::Reply& reply) {
                            check_answer(shares.at(client.id), reply);
                            return std::nullopt;
                          }};
  if (exchange.on_lost)
    asked.on_lost = [&](int64_t client, const std::string& why) {
      missing.insert(client);
      exchange.on_lost(client, why);
    };
  Sessions sessions(fleet_, asked, true);
  for (const auto& [id, share] : shares) sessions.begin(share.client);
  sessions.run();
  if (replies.empty()) return;
  std::vector<fed::Scored> parts;
  for (auto& [client, scored] : replies) parts.push_back(std::move(scored));
  auto all = fed::merged(parts);
  all.score.missing_clients.assign(missing.begin(), missing.end());
  all.score.without_scores.assign(silent.begin(), silent.end());
  exchange.on_reply({.client = task.client.id, .report = std::move(all)});
}

/// Reports the clients whose nodes give no scores of test rows that they have, and returns them.
std::set<int64_t> FleetFabric::report_nodes_without_scores(const fed::Exchange& exchange) const {
  std::set<int64_t> silent;
  for (const auto& [id, member] : fleet_.roster.members()) {
    if (member.no_scores.empty()) continue;
    silent.insert(id);
    if (exchange.on_lost) exchange.on_lost(id, concat(member.name, ": ", member.no_scores));
  }
  return silent;
}

std::map<int64_t, fed::Task> FleetFabric::shares_of(const fed::Task& task) const {
  std::map<int64_t, fed::Task> shares;
  for (const auto& [id, member] : fleet_.roster.members()) {
    const auto& profile = fleet_.joining.profile;
    if (member.test_rows == 0 || (profile && !profile(id).is_scored_after(task.round))) continue;
    auto& share = shares.try_emplace(id, task).first->second;
    share.client.id = id;
    std::get<fed::Score>(share.ask).own_rows = true;
  }
  EK_CHECK(!shares.empty(), kData,
           "no client has test rows: score nothing of their own (evaluate.tasks), or give a node "
           "--test, or the config held_out");
  return shares;
}

}  // namespace evenkeel::flower
