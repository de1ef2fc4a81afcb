/// \file  Uploads on disk. What a client sends is written as a file when it arrives and read back, memory-mapped, for
/// the aggregate; a round that was interrupted finds the uploads that had arrived and does not train those clients
/// again.
///
/// Layout of a journal's folder, per client id:
///   <id>.upload.safetensors   the payload, as it crossed the wire: its length is what traffic reports count; absent
///                             when it stayed where it was made
///   <id>.memory.safetensors   what the client keeps for itself until its next round; absent when it keeps nothing
///   <id>.json                 what the client measured, and the SHA-256 of the files above, sealed
///                             (base/plain/sealed.h). It is written last; without it the upload does not count
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/format/record.h"
#include "base/plain/sealed.h"
#include "fed/store/background.h"
#include "methods/protocol.h"
#include "train/local_training.h"

namespace evenkeel {

/// What is known of one client's round besides its upload.
struct ClientRecord : LocalReport {
  int64_t id = 0;
  int64_t bytes_down = 0, bytes_up = 0;
  std::map<std::string, int64_t> down_parts{}, up_parts{};  ///< the same by content (lora/payload.h)
  double flops = 0;
  std::vector<FileSeal> files{};  ///< of the upload and, where there is one, the memory

  void visit(auto& field) {  // base/format/record.h
    field("id", id);
    LocalReport::visit(field);
    field("bytes_down", bytes_down);
    field("bytes_up", bytes_up);
    field("down_parts", down_parts);
    field("up_parts", up_parts);
    field("flops", flops);
    field("files", files);
  }
};

/// The journal of one round. Cheap to make: all that counts is in the folder. Files that this journal wrote and that
/// nobody touched since are read without being hashed again, which keeps checksums below 2 % of a round. Threads: one
/// uses it.
class RoundJournal {
 public:
  /// Makes the folder if it is missing.
  /// \param flush_s  seconds for which clients' files may wait to be flushed to disk, together; above 0, what takes no
  ///                 more than 64 MiB is also written beside the caller, who goes on to the next client. A killed
  ///                 process loses the last two at most; a machine that loses power loses those that waited: their
  ///                 clients are trained again, to the bit. 0 where a client cannot be asked again at no other cost.
  /// \param replaces  the journal of the round before, which is committed: one upload of it is removed for each that
  ///                  is written here. Its memory in the system's cache is then taken over as it is; left free for
  ///                  seconds, a virtual machine gives it back to its host, and getting it again costs more than
  ///                  writing to it.
  explicit RoundJournal(std::filesystem::path folder, double flush_s = 0, const std::filesystem::path& replaces = {});

  /// Whether the client's upload arrived, and is as it arrived. A damaged one is warned of and counts as none: the
  /// client makes it again, to the bit.
  bool holds(int64_t client) const;
  /// Encodes the upload where that is still to be done, and writes it, memory and record, on disk at once or with
  /// flush(). Sets record.bytes_up, up_parts and files. What cannot be written beside the caller is an error of
  /// whichever call comes next.
  void store(ClientRecord record, const DeferredPayload& upload, const TensorMap& memory);
  /// The same of a client whose upload stays where it was made, but for what is known of it already: bytes_up and
  /// up_parts. holds() does not count it: whoever goes on after an interruption finds no upload.
  void note(ClientRecord record, const TensorMap& memory);
  /// Returns when all that was stored is on disk.
  void flush();

  ClientRecord record(int64_t client) const;
  /// The client's contribution; tensors are views of the file. \throws kCheckpoint when a file is damaged, as all
  /// below.
  ClientUpdate update(const ClientProfile& client) const;
  /// Its file. REQUIRES that holds() is true
  std::filesystem::path upload(int64_t client) const;
  /// A copy of what the client keeps; empty when it keeps nothing.
  TensorMap memory(int64_t client) const;

 private:
  std::filesystem::path file(int64_t client, std::string_view suffix) const;
  /// Now, or beside the caller. \param bytes  that `work` holds in memory
  void write(int64_t bytes, std::function<void()> work) const;
  void write_upload(ClientRecord record, const EncodedPayload& upload, const TensorMap& memory);
  /// The last part of both: memory and record, beside the files that are there.
  void finish(ClientRecord record, const TensorMap& memory);
  void flush_waiting();
  void settle() const;
  /// The client's file of that kind after its bytes were checked; nothing when `record` names none.
  std::optional<std::filesystem::path> checked(const ClientRecord& record, std::string_view suffix) const;

  void put(const std::filesystem::path& file, std::string_view bytes);

  std::filesystem::path folder_;
  double flush_s_;
  std::vector<std::filesystem::path> replaced_{};     ///< uploads of the round before
  std::map<int64_t, std::vector<FileSeal>> written_;  ///< by client
  std::vector<std::filesystem::path> waiting_{};      ///< to be flushed
  std::chrono::steady_clock::time_point flushed_ = std::chrono::steady_clock::now();
  std::unique_ptr<Background> beside_{};  ///< last: it is done before what it uses goes; null where flush_s is 0
};

}  // namespace evenkeel
