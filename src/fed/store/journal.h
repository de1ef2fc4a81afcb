/// \file  Implements the journal of a round, which stores uploads on disk. An upload is written to a file when it
/// arrives, and is memory-mapped for the aggregation. After an interruption, clients whose uploads are in the journal
/// do not train again.
///
/// Files in a journal's folder, per client id:
///   <id>.upload.safetensors   the payload as it was sent, so its length is the reported traffic; absent if the upload
///                             stayed in another process (RemoteUpload)
///   <id>.memory.safetensors   tensors that the client keeps until its next round; absent if there are none
///   <id>.json                 the client's measurements and the seals of the files above (base/format/file_seal.h),
///                             itself sealed (base/plain/sealed.h). It is written last; without it the upload does not
///                             count
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

#include "base/format/file_seal.h"
#include "base/format/record.h"
#include "base/plain/sealed.h"
#include "fed/exchange/upload.h"
#include "fed/store/background.h"
#include "methods/protocol.h"
#include "train/local_training.h"

namespace evenkeel::fed {

/// Measurements of one client's round. The upload itself is a separate file.
struct ClientRecord : train::LocalReport {
  int64_t id = 0;
  int64_t bytes_down = 0, bytes_up = 0;                     ///< bytes of the task's payload and of the upload
  std::map<std::string, int64_t> down_parts{}, up_parts{};  ///< bytes by kind of content (lora/payload.h)
  double flops = 0;                                         ///< estimated by client_flops()
  std::vector<FileSeal> files{};  ///< seals of the upload's file and of the memory's file, if they exist

  void visit(auto& field) {  // base/format/record.h
    field("id", id);
    train::LocalReport::visit(field);
    field("bytes_down", bytes_down);
    field("bytes_up", bytes_up);
    field("down_parts", down_parts);
    field("up_parts", up_parts);
    field("flops", flops);
    field("files", files);
  }
};

/// The journal of one round. Construction is cheap, because all its data is in the folder. Files that this object wrote
/// are hashed again only if they have changed since; this keeps hashing below 2 % of a round's time. Threads: one.
class RoundJournal {
 public:
  static constexpr int64_t kBackgroundBytes = int64_t{1} << 26;  ///< 64 MiB

  /// Creates the folder if it is missing.
  /// \param flush_s   Longest time in seconds before files are flushed to disk together. Above 0, uploads of up to 64
  /// MiB (see `background_bytes`) are also written by a background thread while the caller continues. A killed process
  /// then loses at most the last two uploads, and a power failure loses the uploads that are not flushed; their clients
  /// train again with bit-identical results. 0 flushes each client's files at once; use 0 if repeating a client's work
  /// has other costs than time.
  /// \param replaces  Journal of the previous, committed round. For each upload written here, one upload of that
  /// journal is removed, so that the new file gets its memory pages. (A virtual machine returns pages that stay free
  /// for seconds to its host, and allocating them again is slower than writing.)
  /// \param background_bytes  Largest upload that the background thread writes. Up to two uploads are in memory there.
  explicit RoundJournal(std::filesystem::path folder, double flush_s = 0, const std::filesystem::path& replaces = {},
                        int64_t background_bytes = kBackgroundBytes);

  /// Returns true if the client's upload is stored and its files have the recorded hashes. A damaged upload causes a
  /// warning and returns false; the client then makes it again with bit-identical results. \throws kIo when one of the
  /// client's files is a folder
  bool holds(int64_t client) const;
  /// Encodes the upload if necessary and writes upload, memory and record. The files are flushed at once or later, see
  /// `flush_s`. Sets bytes_up, up_parts and files of the stored record. An error of the background thread is thrown by
  /// a later call, with the context of the client whose upload it was.
  /// For a remote upload only memory and record are written. holds() then remains false, so after an interruption the
  /// client trains again. REQUIRES an upload of another form than NoUpload
  /// \param context  goes in front of the messages of this client's errors (base/system/error_context.h); may be empty
  void store(ClientRecord record, const Upload& upload, const TensorMap& memory, const std::string& context = {});
  /// Removes what is stored of a client. The removal is on disk when the call returns.
  void discard(int64_t client);
  /// Flushes all stored files to disk.
  void flush();

  /// Reads the client's record. \throws kIo when it is missing, kCheckpoint when it is damaged
  ClientRecord record(int64_t client) const;
  /// Reads the client's upload. Its tensors are views of the mapped file. \throws kCheckpoint when a file is damaged
  methods::ClientUpdate update(const methods::ClientProfile& client) const;
  /// Returns the path of the client's upload. REQUIRES holds(client)
  std::filesystem::path upload(int64_t client) const;
  /// Returns a copy of the client's memory; empty if it keeps none. \throws kCheckpoint when a file is damaged
  TensorMap memory(int64_t client) const;

 private:
  std::filesystem::path file(int64_t client, std::string_view suffix) const;
  /// Runs `work` now or in the background thread. \param bytes  memory that `work` holds
  void write(int64_t bytes, const std::string& context, const std::function<void()>& work) const;
  void store_here(ClientRecord record, const lora::DeferredPayload& upload, const TensorMap& memory,
                  const std::string& context);
  void store_remote(ClientRecord record, const RemoteUpload& upload, const TensorMap& memory,
                    const std::string& context);
  void write_upload(ClientRecord record, const lora::DeferredPayload& upload, const TensorMap& memory);
  /// Writes memory and record.
  void finish(ClientRecord record, const TensorMap& memory);
  void flush_waiting();
  void settle() const;
  /// Returns the client's file with that suffix after checking its bytes; nullopt if `record` names no such file.
  std::optional<std::filesystem::path> checked(const ClientRecord& record, std::string_view suffix) const;

  void put(const std::filesystem::path& file, std::string_view bytes);

  std::filesystem::path folder_;
  double flush_s_;
  int64_t background_bytes_;
  std::vector<std::filesystem::path> replaced_{};     ///< uploads of the previous round that are still to be removed
  std::map<int64_t, std::vector<FileSeal>> written_;  ///< seals by client
  std::vector<std::filesystem::path> waiting_{};      ///< files not flushed yet
  std::chrono::steady_clock::time_point flushed_ = std::chrono::steady_clock::now();
  std::unique_ptr<Background>
      background_{};  ///< background thread, declared last so that it ends first; null if flush_s is 0
};

}  // namespace evenkeel::fed
