#include "fed/round/round.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "base/plain/clock.h"
#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/plain/mapped_files.h"
#include "base/system/error_context.h"
#include "base/system/process.h"
#include "fed/config/sampling.h"
#include "fed/round/client_privacy.h"
#include "fed/round/payload_check.h"
#include "fed/round/round_measures.h"
#include "fed/round/starting_adapter.h"
#include "fed/round/training_tasks.h"
#include "fed/round/update_bounds.h"
#include "fed/round/update_size.h"
#include "fed/round/virtual_clock.h"

namespace evenkeel::fed {
namespace {

using Clock = std::chrono::steady_clock;

/// Runs `work` and adds its wall time to `seconds`.
template <typename Work>
auto timed(double& seconds, const Work& work) {
  const auto start = Clock::now();
  auto result = work();
  seconds += seconds_since(start);
  return result;
}

/// The state of a round while it runs.
struct Round {
  const Server& server;
  const Snapshot& now;
  RoundJournal& journal;
  RunProgress& progress;
  ClientPrivacy* privacy;
  methods::RoundView view;
  OtherTraffic other{};
  PhaseSeconds seconds{};
  TrainingTasks tasks{server, now.state, view};
  std::set<int64_t> awaited{};        // clients that have neither replied nor been lost
  std::set<int64_t> remote{};         // clients with a remote upload
  std::map<int64_t, double> moved{};  // norms of updates that were measured when they arrived
  std::vector<LostClient> lost{};     // clients without a reply in the round
  RoundClock clock{server.config, view, now};
  std::optional<SummedReport> report{};  // of all clients, where their own are hidden

  const methods::ClientProfile* participant(int64_t id) const {
    const auto found = std::find_if(view.participants.begin(), view.participants.end(),
                                    [id](const methods::ClientProfile& client) { return client.id == id; });
    return found == view.participants.end() ? nullptr : &*found;
  }

  /// Sends the last round's change of the base to clients that are not drawn. Participants get it with their task. An
  /// empty change is sent too, because clients count the rounds.
  void announce(Fabric& fabric) {
    if (view.round == 0 || !server.config->method.entry().changes_base) return;
    const auto news = server.change_update(now.state);
    std::vector<methods::ClientProfile> idle;
    std::copy_if(server.clients.begin(), server.clients.end(), std::back_inserter(idle),
                 [&](const methods::ClientProfile& client) {
                   return client.may_be_drawn(view.round) && !participant(client.id);
                 });
    fabric.announce(idle, news);
    if (news.payload.size() > 0)
      other.down["base_delta_idle"] += static_cast<int64_t>(idle.size()) * news.payload.size();
  }

  Task task_of(const methods::ClientProfile& client) {
    progress.begin_client(client);
    return timed(seconds.broadcast, [&] { return tasks.make(client); });
  }

  /// Stores a reply. The journal may throw an error of another client's upload, which has the context of that client.
  void store(const Reply& reply) {
    if (!awaited.contains(reply.client)) return;  // a second reply
    const auto of_client = context(reply.client);
    auto record = in_context(of_client, [&] { return tasks.record_of(reply); });
    if (!record) return;
    awaited.erase(reply.client);
    const auto& client = *participant(reply.client);
    record->flops = in_context(of_client, [&] { return client_flops(server, client, *record); });
    if (std::holds_alternative<RemoteUpload>(reply.upload)) remote.insert(client.id);
    timed(seconds.upload, [&] {
      journal.store(std::move(*record), reply.upload, reply.memory, of_client);
      return true;
    });
    progress.end_client(client);
  }

  std::string who(int64_t client) const { return server.config->clients.who(client); }
  std::string context(int64_t client) const {
    return training_context(view.round, who(client), server.config->method.name);
  }

  /// Trains all participants without an upload in the journal, and removes lost clients from the round.
  void exchange(Fabric& fabric) {
    std::vector<methods::ClientProfile> missing;
    for (const auto& client : view.participants)
      if (clock.drops_out(client.id))
        drop_out(client);
      else if (journal.holds(client.id))
        progress.skip_client(client);
      else
        missing.push_back(client);
    for (const auto& client : missing) awaited.insert(client.id);
    fabric.exchange(missing, {.task_of =
                                  [&](const methods::ClientProfile& client) {
                                    return in_context(context(client.id), [&] { return task_of(client); });
                                  },
                              .on_reply = [&](const Reply& reply) { store(reply); },
                              .on_progress = [&](const ClientProgress& done) { progress.step(shown(done)); },
                              .full_sync = [&] { return server.full_sync(now.state); },
                              .check = [&](const methods::ClientProfile& client,
                                           const Reply& reply) { return check(client, reply); },
                              .on_lost = [&](int64_t client, const std::string& why) { lose(client, why); },
                              .training = TrainingRound{now.state, view},
                              .discard = [&] { discard(); },
                              .encodes = true});
    leave_out(lost);
    if (clock.runs()) leave_out_late();
    leave_out_large(fabric);
  }

  /// Checks a reply of a node.
  /// \return the norm of its update; nothing where the update is hidden, or the norm is withheld
  std::optional<double> check(const methods::ClientProfile& client, const Reply& reply) {
    if (server.hides_uploads()) {
      check_summed_reply(server, now.state, client, reply);
      return std::nullopt;
    }
    moved[client.id] = check_training_reply(server, now.state, client, reply);
    return privacy ? std::nullopt : std::optional(moved[client.id]);
  }

  /// Returns what may be shown of a client's progress.
  ClientProgress shown(ClientProgress done) const {
    if (privacy) done.tokens = 0;
    return done;
  }

  /// Discards the uploads that have arrived.
  void discard() {
    for (const auto& client : view.participants) {
      journal.discard(client.id);
      awaited.insert(client.id);
    }
  }

  void leave_out_late() {
    const auto late = clock.close(view, journalled(), !lost.empty());
    lost.insert(lost.end(), late.begin(), late.end());
    leave_out(late);
  }

  UpdateSize size_of_update(const methods::ClientProfile& client) const {
    const auto update = journal.update(client);
    const auto known = moved.find(client.id);
    const auto& training = server.config->train;
    return {.client = client.id,
            .moved = known != moved.end() ? known->second : update_norm(server, now.state, client, update.payload),
            .steps = update.steps,
            .reach = reach_of(training, training.learning_rate(view.round), update.steps, update.payload)};
  }

  /// Leaves out updates beyond the bounds of [clients]. The quorum is of replies, so it does not count them.
  void leave_out_large(Fabric& fabric) {
    const auto& clients = server.config->clients;
    const UpdateBounds bounds{.norm = clients.update_norm, .ratio = clients.update_ratio};
    if (!server.bounds_updates()) return;
    std::vector<UpdateSize> sizes;
    for (const auto& client : view.participants) sizes.push_back(size_of_update(client));
    const auto large = too_large(sizes, bounds);
    EK_CHECK(large.size() < sizes.size(), kData, "round ", view.round + 1, ": no update is within the bounds of ",
             "[clients]; of ", who(sizes.front().client), ": ", large.front().why);
    for (const auto& update : large) {
      const auto node = fabric.note_left_out(view.round + 1, update.client, update.why, update.moved);
      const auto why = concat("left out: ", node, node.empty() ? "" : ": ", update.why);
      log::warning("[train] round ", view.round + 1, ": ", who(update.client), " is ", why);
      enter_loss(update.client, why, journal.record(update.client).bytes_down);
      lost.back().moved = update.moved;
      view = without(std::move(view), std::span(&update.client, 1));
    }
  }

  void lose(int64_t client, const std::string& why) {
    if (awaited.erase(client) == 0) return;
    log::warning("[train] round ", view.round + 1, ": ", who(client), " is lost: ", why);
    enter_loss(client, why, tasks.withdraw(client));
  }
  /// Counts a client as lost that drops out in simulated time. It is not trained.
  void drop_out(const methods::ClientProfile& client) {
    task_of(client);
    progress.skip_client(client);
    enter_loss(client.id, "dropped out", tasks.withdraw(client.id));
  }
  /// \param bytes_down  size of the client's task
  void enter_loss(int64_t client, const std::string& why, int64_t bytes_down) {
    lost.push_back({client, server.config->clients.name(client), why, bytes_down, {}, {}});
  }
  void leave_out(std::span<const LostClient> clients) {
    std::vector<int64_t> ids;
    for (const auto& client : clients) ids.push_back(client.id);
    if (!ids.empty()) view = without(std::move(view), ids, server.config->clients.quorum);
  }

  methods::ServerState aggregate(Fabric& fabric) {
    std::vector<methods::ClientUpdate> updates;
    for (const auto& client : view.participants)
      if (!remote.contains(client.id)) updates.push_back(journal.update(client));
    return timed(seconds.aggregate, [&] {
      release_mapped_pages();  // of the base: all clients' uploads are mapped now
      trim_heap(now.state);
      const auto unmasked = server.hides_uploads() ? fabric.unmasked(view, updates) : std::nullopt;
      return server.aggregate(now.state, view, updates,
                              {.others = remote.empty() ? nullptr : &fabric.sums(view),
                               .unmasked = unmasked ? &*unmasked : nullptr,
                               .privacy = privacy,
                               .report = &report});
    });
  }

  ClientMemories memories() const {
    ClientMemories memories = now.memories;
    for (const auto& client : view.participants) {
      memories.erase(client.id);
      if (auto memory = journal.memory(client.id); !memory.empty()) memories[client.id] = std::move(memory);
    }
    return memories;
  }

  std::vector<ClientRecord> journalled() const {
    std::vector<ClientRecord> records;
    for (const auto& client : view.participants) records.push_back(journal.record(client.id));
    return records;
  }

  void add_training(const ClientRecord& client) {
    seconds.train += client.seconds;
    seconds.steps += client.step_seconds;
    if (client.move_seconds) seconds.move = seconds.move.value_or(0) + *client.move_seconds;
  }

  RoundRecord record(const methods::ServerState& next) {
    const auto clients = journalled();
    for (const auto& client : clients) add_training(client);
    for (const auto& client : lost) other.down["tasks_of_lost"] += client.bytes_down;
    auto record = round_record(server, view, {clients, other, report}, next, seconds);
    std::sort(lost.begin(), lost.end(), [](const auto& x, const auto& y) { return x.id < y.id; });
    if (!lost.empty()) record.lost = lost;
    clock.add_times(record);
    if (privacy) record.privacy = privacy->record();
    return record;
  }
};

}  // namespace

Snapshot before_first_round(const Server& server, Fabric& fabric) {
  if (server.config->secure_aggregation.mode == SecureMode::kMasks && !server.clients_are_nodes())
    log::info("[train] masks of uploads are simulated: their keys follow from the seed, which everybody has");
  Snapshot begun;
  begun.state = initial_state(server, fabric, &begun.opening);
  const auto news = server.full_sync(begun.state);
  fabric.announce(server.clients, news);
  begun.opening.down["fixed_factors"] += static_cast<int64_t>(server.clients.size()) * news.payload.size();
  return begun;
}

void trim_heap(const methods::ServerState& state) {
  if (!state.common.base_change.empty()) give_back_freed_memory();
}

void restore_clients(const Server& server, Fabric& fabric, const Snapshot& now) {
  if (!fabric.share(now.state)) fabric.announce(server.clients, server.full_sync(now.state));
  fabric.remember(now.memories);
}

RoundResult run_round(const Server& server, Fabric& fabric, const Snapshot& now, RoundJournal journal,
                      RunProgress& progress, ClientPrivacy* privacy) {
  EK_CHECK((privacy != nullptr) == server.config->privacy.protects_clients(), kInternal,
           "a run that protects its clients has an account, and no other run has");
  Round round{server, now, journal, progress, privacy, server.draw(now.state), now.opening};
  const auto begin = Clock::now();
  progress.begin_round(round.view);
  if (privacy) server.check_private_sum(now.state, privacy->noise());
  round.announce(fabric);
  round.exchange(fabric);
  const auto context = concat("round ", round.view.round + 1, ", method ", server.config->method.name);
  auto next = in_context(context, [&] { return round.aggregate(fabric); });
  trim_heap(next);
  round.seconds.round = seconds_since(begin);
  auto record = round.record(next);
  return {{.state = std::move(next), .memories = round.memories(), .clock = round.clock.end()}, std::move(record)};
}

}  // namespace evenkeel::fed
