/// \file  Defines the messages between server and clients, and encodes them as bytes. Tensors are sent as an encoded
/// payload; traffic counts are the lengths of payloads. All other fields of a message are small and are part of a JSON
/// header.
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
#include "fed/exchange/summed_terms.h"
#include "fed/exchange/upload.h"
#include "lora/payload.h"
#include "methods/protocol.h"
#include "scoring/task_evaluation.h"
#include "train/local_training.h"

namespace evenkeel::fed {

/// Client id of the pool of all clients' rows. Only fabrics that have all rows in one place can reach it.
inline constexpr int64_t kPooledData = -2;
/// Maps a client id to the tensors that the client keeps across rounds.
using ClientMemories = std::map<int64_t, TensorMap>;

/// Id of the evaluation client, which scores tasks and never trains.
inline constexpr int64_t kEvaluator = -1;

/// Carries a change of the shared state, or the whole shared state, to a client. All clients receive changes, also
/// those that are not drawn for the round.
struct StateUpdate {
  int64_t round = 0;   ///< round of the state that the update belongs to
  bool whole = false;  ///< true: the whole shared state (full sync); false: the change since the round before
  /// `adapters` holds the factors that never train. `base_delta` holds the change of the base: the sum of all rounds if
  /// `whole`, otherwise the change of the last round.
  lora::EncodedPayload payload{};
};

/// Asks for local training that starts from the broadcast in Task::payload. The reply: a LocalReport and the upload.
struct Train {
  std::optional<double> lr{};  ///< learning rate of this round; nullopt: the constant rate of the config
  /// How the upload becomes a summand; nullopt: it is sent as it is.
  std::optional<SummedTerms> summed{};

  void visit(auto& field) {
    field("lr", lr);
    field("summed", summed);
  }
};

/// Asks for gradients of the frozen weights of some sites, summed over the client's share of `sample`. One pass over
/// the rows computes all of them. The reply holds an extra tensor "<site>.gradient" per site, or no payload if no row
/// was drawn.
struct SumGradients {
  std::vector<std::string> sites;
  methods::GradientSample sample;

  void visit(auto& field) {  // base/format/record.h, as all below
    field("sites", sites);
    field("sample", sample);
  }
};

/// Asks the evaluation client, or a client with test rows of its own, to score one task with the broadcast in
/// Task::payload. The reply holds a Scored.
struct Score {
  std::string task;
  std::string rank_eval_mode{};  ///< rank evaluation mode, a or b (TaskScore::rank_eval_mode)
  /// Other than kRun: the payload is the exported adapter and is used as it is.
  scoring::ServedBy served_by = scoring::ServedBy::kRun;
  bool predictions = false;  ///< true: the reply holds the prediction for each row
  /// True: score the client's own test rows; false: the test rows of the task. A request never selects single rows: all
  /// of them are scored, up to the limit of the config.
  bool own_rows = false;

  void visit(auto& field) {
    field("task", task);
    field("rank_eval_mode", rank_eval_mode);
    field.optional("served_by", served_by);
    field("predictions", predictions);
    field.optional("own_rows", own_rows);
  }
};

/// A task: the message that asks one client to train, to sum gradients or to score.
struct Task {
  int64_t round = 0;              ///< rounds done so far
  methods::ClientProfile client;  ///< the addressee
  std::variant<Train, SumGradients, Score> ask{};
  lora::EncodedPayload payload{};
};

/// The reply to a Score.
struct Scored {
  scoring::TaskScore score;
  std::vector<scoring::Prediction> predictions;  ///< one per row if Score::predictions is true, else empty
  std::optional<scoring::ItemScores> items{};    ///< set if evaluate.items is true

  void visit(auto& field) {
    field("score", score);
    field("predictions", predictions);
    field("items", items);
  }
};

/// A client's reply to a Task.
struct Reply {
  int64_t client = 0;
  Upload upload{};
  std::variant<train::LocalReport, Scored> report{};  ///< an empty LocalReport after SumGradients
  TensorMap memory{};  ///< tensors that the client keeps until its next round; never sent in messages
  /// Size of the task's payload. Set only if another process than the server's made the task (TrainingRound); never
  /// sent in messages.
  std::optional<PayloadSize> task_size{};
};

/// Returns the report of `reply` as a `Report` (LocalReport or Scored).
/// \throws kData naming the client when the report is of another type
template <typename Report>
const Report& report_of(const Reply& reply) {
  const auto* report = std::get_if<Report>(&reply.report);
  EK_CHECK(report, kData, "client ", reply.client, " replied to another kind of task");
  return *report;
}

/// Encodes a message without its payload as JSON, for transports that send the payload separately. The header of a
/// reply does not hold the size of a remote upload.
std::string header_of(const StateUpdate& news);
std::string header_of(const Task& task);
std::string header_of(const Reply& reply);

/// Encodes a message with its payload. Reply::memory and Reply::task_size are left out. The upload of a reply must be
/// encoded or absent.
/// \return [N] uint8
at::Tensor to_bytes(const StateUpdate& news);
at::Tensor to_bytes(const Task& task);
at::Tensor to_bytes(const Reply& reply);

/// A received message. Its payload is a view of the received bytes.
using Message = std::variant<StateUpdate, Task, Reply>;
/// Decodes a message from its header and payload.
/// \param payload_N  [N] uint8; undefined or empty if the message has no payload. The message keeps a reference to it.
/// \param source     the sender, for error messages
/// \throws kData when header and payload are not a message
Message from_parts(std::string_view header, const at::Tensor& payload_N, const std::string& source);
/// Decodes a message from the bytes of to_bytes().
/// \param source  the sender, for error messages
/// \throws kData when the bytes are not a message
Message from_bytes(const at::Tensor& bytes_N, const std::string& source);

/// Maps a kind of content to its size in bytes.
using Traffic = std::map<std::string, int64_t>;
int64_t total_bytes(const Traffic& traffic);

/// Traffic of a round in addition to the payloads of its participants.
struct OtherTraffic {
  Traffic down{};  ///< base_delta_idle: the last round's change of the base, to clients that are not drawn;
                   ///< fixed_factors: to every client before round 1; tasks_of_lost: tasks that got no reply
  Traffic up{};    ///< gradient_sums: from every client before round 1
};

/// Returns "round 3, client 1, method fedit", the context of training errors.
/// \param round  number of rounds done, so that the text names round + 1
/// \param who    the client's name as ClientsSection::who() returns it
inline std::string training_context(int64_t round, std::string_view who, std::string_view method) {
  return concat("round ", round + 1, ", ", who, ", method ", method);
}

}  // namespace evenkeel::fed
