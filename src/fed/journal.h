/// \file  Uploads on disk. What a client sends is written as a file when it arrives and read back, memory-mapped, for
/// the aggregate; a round that was interrupted finds the uploads that had arrived and does not train those clients
/// again.
///
/// Layout of a journal's folder, per client id:
///   <id>.upload.safetensors   the payload, as it crossed the wire: its length is what traffic reports count
///   <id>.memory.safetensors   what the client keeps for itself until its next round; absent when it keeps nothing
///   <id>.json                 what the client measured; written last: an upload without it never arrived
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "base/json.h"
#include "methods/method.h"
#include "train/local_training.h"

namespace evenkeel {

/// What is known of one client's round besides its upload.
struct ClientRecord {
  int64_t id = 0;
  int64_t steps = 0, tokens = 0, targets = 0;
  double loss_sum = 0, first_loss = 0, last_loss = 0;
  int64_t bytes_down = 0, bytes_up = 0;
  std::map<std::string, int64_t> down_parts, up_parts;  ///< the same by content (lora/payload.h)
  RoutingByLayer counts;                                ///< logits undefined
  std::map<std::string, double> metrics;
  double flops = 0;
  double seconds = 0;
};
OrderedJson to_json(const ClientRecord& record);
ClientRecord client_record(const Json& json);

/// The journal of one round. Cheap to make; all state is in the folder.
class RoundJournal {
 public:
  /// Makes the folder if it is missing.
  RoundJournal(std::filesystem::path folder, TransportDtype dtype);

  bool holds(int64_t client) const;
  /// Writes upload, memory and record; returns when they are on disk. Sets record.bytes_up and up_parts.
  void store(ClientRecord record, const Payload& upload, const TensorMap& memory) const;

  ClientRecord record(int64_t client) const;
  /// The client's contribution; tensors are views of the file. \throws kCheckpoint when the file is damaged.
  ClientUpdate update(const ClientProfile& client) const;
  /// A copy of what the client keeps; empty when it keeps nothing.
  TensorMap memory(int64_t client) const;

 private:
  std::filesystem::path file(int64_t client, std::string_view suffix) const;

  std::filesystem::path folder_;
  TransportDtype dtype_;
};

}  // namespace evenkeel
