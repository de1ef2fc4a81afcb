#include "cluster/worker.h"

#include <ATen/ATen.h>

#include <chrono>
#include <optional>

#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/plain/mapped_files.h"
#include "cluster/cluster_fabric.h"
#include "cluster/identity.h"
#include "cluster/reply_exchange.h"
#include "fed/config/sampling.h"
#include "fed/round/training_tasks.h"
#include "fed/store/journal.h"
#include "fed/store/state_file.h"

namespace evenkeel::cluster {
namespace {

/// Maps a file. The returned bytes keep the mapping alive.
at::Tensor mapped_bytes(const fs::path& file) {
  const auto mapping = std::make_shared<MappedFile>(file);
  const auto bytes = mapping->bytes();
  return at::from_blob(
      const_cast<std::byte*>(bytes.data()), {static_cast<int64_t>(bytes.size())}, [mapping](void*) {}, at::kByte);
}

class Worker {
 public:
  Worker(ProcessGroup& member, fed::Experiment& e, const Scratch& scratch, const StopRequest& stop)
      : member_(member), server_(e.server), local_(e.fabric), stop_(stop), commands_(member), scratch_(scratch) {}

  /// Executes a command. \return false when it was the last one
  bool execute(const Command& command) {
    switch (command.order) {
      case Order::kNews:
        apply_update(command);
        return true;
      case Order::kTrain:
        train(command);
        return true;
      case Order::kSum:
        sum(command);
        return true;
      case Order::kGradients:
        sum_gradients(command);
        return true;
      case Order::kEnd:
        member_.disable_guard();
        member_.post(concat("bye/", member_.group_rank()), "");
        return false;
    }
    fail(kInternal, "an unknown order");
  }
  Command next() { return commands_.take(); }
  void begin_again() { commands_.begin_again(); }

 private:
  const std::vector<int64_t>& own(const Command& command) const {
    return command.shares.at(static_cast<size_t>(member_.group_rank()));
  }

  void apply_update(const Command& command) {
    const auto bytes = commands_.shared(command.bytes, concat("news of round ", command.round));
    local_.announce(server_.clients, std::get<fed::StateUpdate>(fed::from_bytes(bytes, "news of rank 0")));
  }

  void train(const Command& command) {
    const auto what = concat("the state of round ", command.round + 1);
    state_ = fed::decode_state(commands_.shared(command.bytes, what), command.round, what);
    local_.remember(fed::decode_memories(commands_.shared(command.memory_bytes, what), what));
    state_.common = local_.context.shared->common();
    view_ = server_.draw(state_);
    tasks_.emplace(server_, state_, view_);
    EK_CHECK(ids_of(view_.participants) == command.participants, kInternal, "rank ", member_.rank(), " draws ",
             join(ids_of(view_.participants)), " for round ", command.round + 1, ", rank 0 ",
             join(command.participants));
    trained_ = own(command);
    begin_round(command.round);
    auto missing = server_.profiles(trained_);
    std::erase_if(missing, [&](const methods::ClientProfile& client) { return journal_->holds(client.id); });
    local_.exchange(missing, {.task_of = [&](const methods::ClientProfile& client) { return tasks_->make(client); },
                              .on_reply = [&](const fed::Reply& reply) { store(reply); },
                              .on_progress = [&](const fed::ClientProgress& done) { tell_progress(command, done); },
                              .encodes = true});
    send(command, [&](int64_t client) { return stored_reply(client); });
  }

  /// Removes the uploads of earlier rounds. Those of this round are kept: a group that was lost may have made them.
  void begin_round(int64_t round) {
    const auto folder = scratch_.path() / std::to_string(round);
    for (const auto& old : entries_of(scratch_.path()))
      if (old != folder) remove_path(old);
    if (!journal_ || journal_round_ != round) journal_.emplace(folder);
    journal_round_ = round;
  }

  void store(const fed::Reply& reply) { journal_->store(tasks_->record_of(reply).value(), reply.upload, reply.memory); }

  /// Returns the reply of a client as it is sent to rank 0: with the upload only if the method needs it there.
  fed::Reply stored_reply(int64_t client) const {
    const auto record = journal_->record(client);
    fed::Reply reply{
        .client = client, .report = static_cast<const train::LocalReport&>(record), .memory = journal_->memory(client)};
    reply.task_size = fed::PayloadSize{record.bytes_down, record.down_parts};
    if (server_.needs_uploads())
      reply.upload = lora::EncodedPayload{mapped_bytes(journal_->upload(client)), record.up_parts};
    else
      reply.upload = fed::RemoteUpload{{record.bytes_up, record.up_parts}};
    return reply;
  }

  void send(const Command& command, const std::function<fed::Reply(int64_t client)>& reply_of) {
    if (own(command).empty()) return;
    member_.post(ready_key(command.exchange, member_.group_rank()), "");
    wait_for(grant_key(command.exchange, member_.group_rank()));
    const ReplyHeader header{
        .layout = layout_of(server_.sites), .round = command.round, .group = member_.group_number()};
    for (const int64_t client : own(command)) {
      const auto reply = reply_of(client);
      member_.together(concat("the reply of client ", client, ", round ", command.round + 1),
                       [&](Collective& group) { send_reply(group, 0, header, reply); });
    }
  }

  void wait_for(const std::string& key) {
    for (; !member_.read(key); ProcessGroup::pause()) {
      member_.check();
      ask_stop();
    }
  }

  /// Returns the round as rank 0 aggregates it: without lost and late clients.
  methods::RoundView left_of_round(const Command& command) const {
    std::vector<int64_t> lost;
    for (const int64_t id : ids_of(view_.participants))
      if (std::find(command.participants.begin(), command.participants.end(), id) == command.participants.end())
        lost.push_back(id);
    return lost.empty() ? view_ : fed::without(view_, lost);
  }

  /// Aggregates the uploads of this rank together with the other ranks. Only rank 0 uses the new state.
  void sum(const Command& command) {
    EK_CHECK(command.round == state_.round, kInternal, "sums of round ", command.round + 1, " after the training of ",
             state_.round + 1);
    std::vector<methods::ClientUpdate> updates;
    const auto round = left_of_round(command);
    for (const auto& client : round.participants)
      if (std::find(trained_.begin(), trained_.end(), client.id) != trained_.end())
        updates.push_back(journal_->update(client));
    server_.aggregate(state_, round, updates, {.others = &reduction_});
  }

  void sum_gradients(const Command& command) {
    std::map<int64_t, fed::Reply> replies;
    local_.exchange(server_.profiles(own(command)),
                    {.task_of =
                         [&](const methods::ClientProfile& client) {
                           return fed::Task{.client = client, .ask = command.ask.value()};
                         },
                     .on_reply = [&](fed::Reply reply) { replies[reply.client] = std::move(reply); }});
    send(command, [&](int64_t client) { return replies.at(client); });
  }

  /// Reports the progress of a client to rank 0, at most twice a second.
  void tell_progress(const Command& command, const fed::ClientProgress& done) {
    member_.check();
    ask_stop();
    const auto now = std::chrono::steady_clock::now();
    if (now - last_progress_ < std::chrono::milliseconds(500)) return;
    last_progress_ = now;
    member_.post(progress_key(command.exchange, member_.group_rank()),
                 concat(done.client, ' ', done.steps, ' ', done.tokens));
  }

  void ask_stop() const {
    if (stop_ && stop_()) throw Interrupted(concat("rank ", member_.rank(), " was asked to stop"));
  }

  ProcessGroup& member_;
  const fed::Server& server_;
  fed::LocalFabric& local_;
  const StopRequest& stop_;
  Commands commands_;
  const Scratch& scratch_;
  GroupReduction reduction_{member_};
  methods::ServerState state_;
  methods::RoundView view_;
  std::vector<int64_t> trained_;  // clients of the last exchange
  std::optional<fed::TrainingTasks> tasks_;
  std::optional<fed::RoundJournal> journal_;
  int64_t journal_round_ = -1;
  std::chrono::steady_clock::time_point last_progress_{};
};

}  // namespace

void run_worker(ProcessGroup& member, fed::Experiment& experiment, const Scratch& scratch, const StopRequest& stop) {
  Worker worker(member, experiment, scratch, stop);
  for (;;) try {
      while (worker.execute(worker.next())) {
      }
      return;
    } catch (const Error& error) {
      if (!member.options().regroup || !member.broken()) throw;
      log::error("[cluster] ", error.what());
      member.regroup();
      worker.begin_again();
    }
}

}  // namespace evenkeel::cluster
