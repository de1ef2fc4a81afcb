#include "fed/round.h"

#include <c10/util/Exception.h>

#include <chrono>

#include "base/files.h"
#include "fed/records.h"
#include "fed/sampling.h"
#include "train/local_training.h"

namespace evenkeel {
namespace {

using Clock = std::chrono::steady_clock;

/// Runs `work` and adds its wall time to `seconds`.
template <typename Work>
auto timed(double& seconds, const Work& work) {
  const auto start = Clock::now();
  auto result = work();
  seconds += std::chrono::duration<double>(Clock::now() - start).count();
  return result;
}

/// Runs `work`; an error says where it happened.
template <typename Work>
auto in_context(const std::string& context, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    throw error.with_context(context);
  } catch (const c10::Error& error) {
    fail(kInternal, context, ": ", error.what_without_backtrace());
  }
}

TensorMap memory_of(const Snapshot& snapshot, int64_t client) {
  const auto found = snapshot.memories.find(client);
  return found == snapshot.memories.end() ? TensorMap{} : found->second;
}

/// The length of what is sent to somebody; nothing when there is nothing to send.
int64_t bytes_of(const Payload& payload, TransportDtype dtype) {
  return payload.adapters.empty() && payload.base_delta.empty() ? 0 : payload_size(payload, dtype);
}

ClientRecord make_record(const Experiment& e, const ClientProfile& client, const LocalResult& result,
                         const EncodedPayload& sent) {
  const int64_t sequences = result.steps * e.config.train.batch_size * e.config.train.accumulation;
  return {.id = client.id,
          .steps = result.steps,
          .tokens = result.tokens,
          .targets = result.targets,
          .loss_sum = result.loss_sum,
          .first_loss = result.first_loss,
          .last_loss = result.last_loss,
          .bytes_down = sent.size(),
          .bytes_up = 0,
          .down_parts = sent.parts,
          .up_parts = {},
          .counts = result.counts,
          .metrics = result.metrics,
          .flops = client_flops(e, client, result.tokens, sequences),
          .seconds = result.seconds};
}

/// One round in the making: what its steps share.
struct Round {
  const Experiment& e;
  const Snapshot& now;
  RoundJournal& journal;
  RunProgress& progress;
  RoundView view;
  PhaseSeconds seconds{};

  std::string context(const ClientProfile& client) const {
    return concat("round ", view.round + 1, ", client ", client.id, ", method ", e.config.method.name);
  }

  /// What the client does, between its download and its upload.
  void train(const ClientProfile& client) {
    progress.begin_client(client);
    const auto dtype = e.config.train.transport_dtype;
    const auto sent =
        timed(seconds.broadcast, [&] { return encode(e.method->broadcast(now.state, client, view), dtype); });
    const Payload download = received(decode(sent.bytes, context(client)));
    TensorMap memory = memory_of(now, client.id);
    const auto own = e.view(client, now.state, view.round, memory);
    const auto& shard = e.shards.examples[static_cast<size_t>(client.id)];
    const auto on_step = [&](int64_t, int64_t, int64_t tokens) { progress.step(tokens); };
    const auto result = train_locally(*e.model, *e.method, download, own, shard, e.config.train.local(), on_step);
    check_mapped_files();
    timed(seconds.upload, [&] {
      journal.store(make_record(e, client, result, sent), encode(result.upload, dtype), memory);
      return true;
    });
    progress.end_client();
  }

  ServerState aggregate() {
    std::vector<ClientUpdate> updates;
    for (const auto& client : view.participants) updates.push_back(journal.update(client));
    return timed(seconds.aggregate, [&] {
      auto next = e.method->aggregate(e.server(), now.state, view, updates);
      gain_base_delta(next, e.config.train.transport_dtype);
      return next;
    });
  }

  /// A change of the base reaches everybody in the round after it was made. Fixed factors travel in float32: everybody
  /// uses them as they are.
  OtherTraffic other_traffic() const {
    const auto clients = static_cast<int64_t>(e.clients.size());
    const int64_t sit_out = clients - static_cast<int64_t>(view.participants.size());
    const int64_t delta = bytes_of({.base_delta = now.state.global.base_delta}, e.config.train.transport_dtype);
    const int64_t fixed = bytes_of({.adapters = now.state.common.fixed}, TransportDtype::kFloat32);
    OtherTraffic other{.down = {{"base_delta_idle", sit_out * delta}}};
    if (view.round == 0) other.down["fixed_factors"] = clients * fixed;
    if (view.round == 0) other.up["gradient_sums"] = now.start_bytes_up;
    return other;
  }

  ClientMemories memories() const {
    ClientMemories memories = now.memories;
    for (const auto& client : view.participants)
      if (auto memory = journal.memory(client.id); !memory.empty()) memories[client.id] = std::move(memory);
    return memories;
  }

  std::vector<ClientRecord> records() {
    std::vector<ClientRecord> records;
    for (const auto& client : view.participants) records.push_back(journal.record(client.id));
    for (const auto& record : records) seconds.train += record.seconds;
    return records;
  }
};

}  // namespace

Snapshot before_first_round(const Experiment& e) {
  Snapshot begun;
  begun.state = e.method->initialize(e.server(&begun.start_bytes_up));
  return begun;
}

RoundResult run_round(const Experiment& e, const Snapshot& now, RoundJournal journal, RunProgress& progress) {
  Round round{e, now, journal, progress,
              draw_round(e.clients, e.config.clients.participation, e.seed(), now.state.round)};
  progress.begin_round(round.view);
  for (const auto& client : round.view.participants) {
    if (journal.holds(client.id))
      progress.skip_client(client);
    else
      in_context(round.context(client), [&] { round.train(client); });
  }
  const auto context = concat("round ", round.view.round + 1, ", method ", e.config.method.name);
  auto next = in_context(context, [&] { return round.aggregate(); });
  auto record = round_record(e, round.view, round.records(), round.other_traffic(), next, round.seconds);
  return {{std::move(next), round.memories()}, std::move(record)};
}

}  // namespace evenkeel
