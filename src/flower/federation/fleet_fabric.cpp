#include "flower/federation/fleet_fabric.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/plain/text.h"
#include "fed/exchange/merged_score.h"
#include "flower/federation/sessions.h"

namespace evenkeel::flower {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kTick = std::chrono::seconds(1);
constexpr auto kSignOff = std::chrono::seconds(3);  // for which those who leave now are heard
constexpr auto kLook = std::chrono::milliseconds(100);
constexpr size_t kLongestProgram = 64;                // bytes of the version that a node states
constexpr int64_t kMostTestRows = int64_t{1} << 24;   // the server draws among the rows of all
constexpr auto kAskAgain = std::chrono::seconds(30);  // a node that declined may have been mended since

void check(const Acceptance& acceptance, int64_t client, const FleetTerms& terms) {
  EK_CHECK(acceptance.client == client, kData, "it accepts to be client ", acceptance.client, ", offered: ", client);
  EK_CHECK(acceptance.budget > 0 && acceptance.budget <= 1, kData, "its budget is ", acceptance.budget,
           ", allowed: above 0, up to 1");
  EK_CHECK(acceptance.examples >= 1 && acceptance.examples <= terms.most_examples, kData, "it says to have ",
           acceptance.examples, " examples, allowed: 1 to ", terms.most_examples);
  EK_CHECK(acceptance.test_rows >= 0 && acceptance.test_rows <= kMostTestRows, kData, "it says to have ",
           acceptance.test_rows, " test rows, allowed: 0 to ", kMostTestRows);
  EK_CHECK(acceptance.program.size() <= kLongestProgram && escaped(acceptance.program) == acceptance.program, kData,
           "its program is ", shown(acceptance.program), ", allowed: up to ", kLongestProgram,
           " bytes of printable text");
}

/// Sends offers to nodes that are not members yet, and receives their answers.
class Gathering {
 public:
  Gathering(Grid& grid, Roster& roster, const FleetTerms& terms, const Joining& joining)
      : grid_(grid), roster_(roster), terms_(terms), joining_(joining) {}
  ~Gathering() {
    for (const auto& [message, asked] : asked_) grid_.forget(message);
  }

  void ask_newcomers() {
    for (const auto& node : grid_.nodes()) {
      const bool waits = ask_again_.contains(node.id) && Clock::now() < ask_again_.at(node.id);
      if (!node.online || waits || roster_.member(node) || is_asked(node)) continue;
      if (const auto client = joining_.client_of(node, taken())) ask(node, *client);
    }
  }

  void on_reply(const Arrival& arrival) {
    auto found = asked_.extract(arrival.message_id);
    if (found.empty()) return;
    const auto& asked = found.mapped();
    if (arrival.failure) throw *arrival.failure;
    if (arrival.kind != Arrival::Kind::kReply) return pass_over(asked.node, arrival.reason);
    try {
      add(asked, asked.incoming.envelope());
    } catch (const Error& error) {
      pass_over(asked.node, error.what());
    }
  }

 private:
  struct Asked {
    NodeInfo node;
    int64_t client;
    IncomingEnvelope incoming;
  };

  void pass_over(const NodeInfo& node, std::string_view why) {
    log::warning("[serve] ", node.name, " does not join: ", shown(why, kMostReason));
    ask_again_[node.id] = Clock::now() + kAskAgain;
  }

  bool is_asked(const NodeInfo& node) const {
    return std::any_of(asked_.begin(), asked_.end(), [&](const auto& one) { return one.second.node.id == node.id; });
  }
  /// Returns the clients that have a node or for which an offer is pending.
  std::set<int64_t> taken() const {
    std::set<int64_t> clients;
    for (const auto& [client, member] : roster_.members()) clients.insert(client);
    for (const auto& [message, asked] : asked_) clients.insert(asked.client);
    return clients;
  }

  void ask(const NodeInfo& node, int64_t client) {
    IncomingEnvelope incoming(node.name, check_no_payload);
    const auto content = EnvelopePacker().content(offer_envelope(joining_.offer(client)));
    auto message = grid_.send(node.id, content, {.type = "query", .group = "0", .place = incoming.allocator()});
    asked_.emplace(std::move(message), Asked{node, client, std::move(incoming)});
  }

  void add(const Asked& asked, const Envelope& envelope) {
    const auto acceptance = acceptance_in(envelope);
    check(acceptance, asked.client, terms_);
    if (joining_.check_budget) joining_.check_budget(acceptance.budget);
    roster_.add({.client = asked.client,
                 .key = roster_key(asked.node),
                 .name = asked.node.name,
                 .budget = acceptance.budget,
                 .examples = acceptance.examples,
                 .test_rows = acceptance.test_rows,
                 .program = acceptance.program});
    log::info("[serve] ", asked.node.name, " is client ", asked.client, ": budget ", acceptance.budget, ", ",
              acceptance.examples, " examples");
  }

  Grid& grid_;
  Roster& roster_;
  const FleetTerms& terms_;
  const Joining& joining_;
  std::map<std::string, Asked> asked_;  // by message
  std::map<uint64_t, Clock::time_point> ask_again_;
};

}  // namespace

void FleetFabric::serve(Joining joining, const FleetTerms& terms, Fabric* evaluator) {
  fleet_.joining = std::move(joining);
  fleet_.terms = terms;
  evaluator_ = evaluator;
}

void FleetFabric::gather(int64_t clients) {
  Gathering gathering(fleet_.grid, fleet_.roster, fleet_.terms, fleet_.joining);
  const auto members = [this] { return static_cast<int64_t>(fleet_.roster.members().size()); };
  while (members() < clients) {
    gathering.ask_newcomers();
    if (const auto arrival = fleet_.grid.wait(Clock::now() + kTick)) gathering.on_reply(*arrival);
    fleet_.joining.tick(members());
  }
}

void FleetFabric::hand_out(const lora::EncodedPayload& adapter) {
  std::set<int64_t> without;
  for (const auto& [client, member] : fleet_.roster.members()) without.insert(client);
  fed::Exchange nothing;
  nothing.on_loss = [](int64_t, const std::string&) {};
  Sessions sessions(fleet_, nothing);
  for (const int64_t client : without)
    sessions.bring({.id = client}, adapter, [&without, client] { without.erase(client); });
  sessions.run();
  for (const int64_t client : without)
    log::warning("[serve] ", fleet_.roster.members().at(client).name,
                 " has not taken the final adapter: copy it from the run folder (adapter/)");
}

bool FleetFabric::share(const methods::ServerState& state) {
  if (on_round_) on_round_(state.round);
  return false;
}

std::string FleetFabric::note_left_out(int64_t round, int64_t client, const std::string& why, double moved) {
  const auto& name = fleet_.roster.members().at(client).name;
  if (fleet_.on_report)
    fleet_.on_report(
        {.round = round, .client = client, .node = name, .outcome = concat("left out: ", why), .moved = moved});
  return name;
}

void FleetFabric::end_run() {
  fed::Exchange nothing;
  nothing.on_loss = [](int64_t, const std::string&) {};
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
  if (news.whole || news.payload.size() == 0) return;
  fed::Exchange nothing;
  nothing.on_loss = [](int64_t, const std::string&) {};
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
  Sessions sessions(fleet_, checked);
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

void FleetFabric::check_answer(const fed::Task& asked, const fed::Reply& reply) const {
  const auto* ask = std::get_if<fed::Score>(&asked.ask);
  if (!ask) return;
  const auto kind = fleet_.joining.client_tasks.find(ask->task);
  EK_CHECK(kind != fleet_.joining.client_tasks.end(), kInternal, ask->task, " is no task of clients");
  int64_t rows = fleet_.roster.members().at(reply.client).test_rows;
  if (fleet_.joining.test_limit > 0) rows = std::min(rows, fleet_.joining.test_limit);
  if (!ask->rows.empty()) rows = static_cast<int64_t>(ask->rows.size());
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
  std::map<int64_t, fed::Scored> replies;  // by client: sums do not depend on who is first
  std::set<int64_t> missing;
  fed::Exchange asked{.task_of = [&](const methods::ClientProfile& client) { return shares.at(client.id); },
                      .on_reply = [&](fed::Reply reply) { replies[reply.client] = fed::report_of<fed::Scored>(reply); },
                      .on_progress = exchange.on_progress,
                      .full_sync = exchange.full_sync,
                      .check =
                          [&](const methods::ClientProfile& client, const fed::Reply& reply) {
                            check_answer(shares.at(client.id), reply);
                            return std::nullopt;
                          }};
  if (exchange.on_loss)
    asked.on_loss = [&](int64_t client, const std::string& why) {
      missing.insert(client);
      exchange.on_loss(client, why);
    };
  Sessions sessions(fleet_, asked);
  for (const auto& [id, share] : shares) sessions.begin(share.client);
  sessions.run();
  if (replies.empty()) return;
  std::vector<fed::Scored> parts;
  for (auto& [client, scored] : replies) parts.push_back(std::move(scored));
  auto all = fed::merged(parts);
  all.score.missing_clients.assign(missing.begin(), missing.end());
  exchange.on_reply({.client = task.client.id, .report = std::move(all)});
}

std::map<int64_t, fed::Task> FleetFabric::shares_of(const fed::Task& task) const {
  std::vector<std::pair<int64_t, int64_t>> rows;  // of all, in the order of clients: whose, and which of its own
  for (const auto& [id, member] : fleet_.roster.members())
    for (int64_t row = 0; row < member.test_rows; ++row) rows.emplace_back(id, row);
  EK_CHECK(!rows.empty(), kData,
           "no client has test rows: score nothing of their own (evaluate.tasks), or give a node "
           "--test, or the config held_out");
  std::map<int64_t, fed::Task> shares;
  for (const int64_t i :
       data::kept_test_rows(static_cast<int64_t>(rows.size()), fleet_.joining.test_limit, fleet_.joining.seed)) {
    const auto [id, row] = rows[static_cast<size_t>(i)];
    auto& share = shares.try_emplace(id, task).first->second;
    share.client.id = id;
    auto& ask = std::get<fed::Score>(share.ask);
    ask.own_rows = true;
    ask.rows.push_back(row);
  }
  return shares;
}

}  // namespace evenkeel::flower
