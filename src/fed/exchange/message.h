/// \file  What server and clients send each other, and its bytes. Tensors cross as encoded payloads, whose lengths are
/// the traffic; what stands beside them is small and plain.
///
/// A message in bytes: the length of its header (8 bytes, little-endian), the header as JSON, spaces up to a multiple
/// of 64 bytes, and the payload.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/format/record.h"
#include "base/plain/error.h"
#include "lora/payload.h"
#include "methods/protocol.h"
#include "scoring/task_evaluation.h"
#include "train/local_training.h"

namespace evenkeel {

/// Who answers for all clients together: it has everybody's rows. A fabric whose clients keep their rows has none.
inline constexpr int64_t kPooledData = -2;
/// Client id -> what that client keeps across rounds.
using ClientMemories = std::map<int64_t, TensorMap>;

/// Who scores tasks: a client that never trains.
inline constexpr int64_t kEvaluator = -1;

/// What every client learns of the state that all hold alike, whether it takes part in a round or not.
struct StateUpdate {
  int64_t round = 0;   ///< of the state that it belongs to
  bool whole = false;  ///< all of it, to who begins or comes back; else what changed since the round before
  /// adapters: the factors that never train; base_delta: what the base gained, in all or since the round before.
  EncodedPayload payload{};
};

/// A round of local training on the broadcast in Task::payload. Its reply: a LocalReport, and the upload.
struct Train {
  std::optional<double> lr{};  ///< of this round, where it is not the same in every one ([train.schedule])

  void visit(auto& field) { field("lr", lr); }
};

/// The gradients of some sites' weights over the addressee's share of `sample`, in one pass. Its reply: an extra
/// "<site>.gradient" of each, or nothing where no row was drawn.
struct SumGradients {
  std::vector<std::string> sites;
  GradientSample sample;

  void visit(auto& field) {  // base/format/record.h, as all below
    field("sites", sites);
    field("sample", sample);
  }
};

/// The answers to one task of the broadcast in Task::payload, by a client that never trains. Its reply: Scored.
struct Score {
  std::string task;
  std::string reading{};                ///< of the budget, see TaskScore
  ServedBy served_by = ServedBy::kRun;  ///< any other: the payload is the exported adapter, and no method prepares it
  bool predictions = false;
  bool own_rows = false;  ///< those that the addressee keeps for testing; else the task's
  /// With own_rows: which of them, as indices, where a limit draws from the rows of all clients together. Empty: as the
  /// addressee's own limit says.
  std::vector<int64_t> rows{};

  void visit(auto& field) {
    field("task", task);
    field("reading", reading);
    field.optional("served_by", served_by);
    field("predictions", predictions);
    field.optional("own_rows", own_rows);
    field.optional("rows", rows);
  }
};

/// What the server asks of one client.
struct Task {
  int64_t round = 0;     ///< rounds done so far
  ClientProfile client;  ///< the addressee
  std::variant<Train, SumGradients, Score> ask{};
  EncodedPayload payload{};
};

struct Scored {
  TaskScore score;
  std::vector<Prediction> predictions;  ///< one per row when they were asked for
  /// Of a client's own rows that are choices: how often each answer is the right one. The majority over the rows of
  /// several clients is made of it (fed/exchange/merged_score.h).
  std::map<std::string, int64_t> right_answers{};

  void visit(auto& field) {
    field("score", score);
    field("predictions", predictions);
    field.optional("right_answers", right_answers);
  }
};

/// What crossed between a client and who gave it its task, where that was not the server's own process.
struct Crossed {
  int64_t bytes_down = 0, bytes_up = 0;
  std::map<std::string, int64_t> down_parts{}, up_parts{};

  void visit(auto& field) {
    field("bytes_down", bytes_down);
    field("bytes_up", bytes_up);
    field("down_parts", down_parts);
    field("up_parts", up_parts);
  }
};

/// What comes back.
struct Reply {
  int64_t client = 0;
  EncodedPayload payload{};
  /// Only of a client of this process, whose payload is still to be made (Exchange::encodes).
  std::optional<DeferredPayload> late{};
  std::variant<LocalReport, Scored> report{};
  TensorMap
      memory{};  ///< what the client keeps until its next round. Only whoever runs the client sees it: it never crosses
  /// Only of a fabric that is the server's own: it never crosses. Without a payload the upload stays where it was made,
  /// until the round's sums are taken.
  std::optional<Crossed> crossed{};
};

/// What `reply` reports. \throws kData naming the client when it is a report of another kind.
template <typename Report>
const Report& report_of(const Reply& reply) {
  const auto* report = std::get_if<Report>(&reply.report);
  EK_CHECK(report, kData, "client ", reply.client, " replied to another kind of task");
  return *report;
}

/// A message without its payload, as JSON: for transports that carry the two apart.
std::string header_of(const StateUpdate& news);
std::string header_of(const Task& task);
std::string header_of(const Reply& reply);

/// [N] uint8. What a sender keeps to itself (Reply::memory, Reply::crossed) is not among them.
at::Tensor to_bytes(const StateUpdate& news);
at::Tensor to_bytes(const Task& task);
at::Tensor to_bytes(const Reply& reply);

/// A message as it was received. Payloads are views of the bytes.
using Message = std::variant<StateUpdate, Task, Reply>;
/// \param payload_N  [N] uint8, undefined or empty where nothing travels; kept as it is
/// \param place      whose message it is, for errors, as below. \throws kData when it is none.
Message from_parts(std::string_view header, const at::Tensor& payload_N, const std::string& place);
/// \param place  whose bytes they are, for errors. \throws kData when they are no message.
Message from_bytes(const at::Tensor& bytes_N, const std::string& place);

/// Bytes by content.
using Traffic = std::map<std::string, int64_t>;
int64_t total_bytes(const Traffic& traffic);

/// What moves beside the payloads of a round's participants.
struct OtherTraffic {
  Traffic down{};  ///< base_delta_idle: the last round's change of the base, to the clients that sit this one out;
                   ///< fixed_factors: to every client before the first round; tasks_of_lost: to those who did not reply
  Traffic up{};    ///< gradient_sums: from every client before the first round
};

/// "round 3, client 1, method fedit", in front of errors. \param who  as ClientsSection::who() calls it
inline std::string training_context(int64_t round, std::string_view who, std::string_view method) {
  return concat("round ", round + 1, ", ", who, ", method ", method);
}

}  // namespace evenkeel
