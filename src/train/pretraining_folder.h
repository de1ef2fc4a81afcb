/// \file  Manages the folder of a pre-training: records and one checkpoint. Both are sealed, that is stored with a
/// checksum (base/plain/sealed.h). The process may be killed at any time without losing the checkpoint. open() checks
/// the files before roll_back() may remove any.
///
///   pretrain.toml                   config with all keys; exists from the start of a run
///   pretrain.jsonl                  the loss curve, one sealed line per record
///   tokenizer.json                  tokenizer of the model
///   checkpoint.json                 the marker: step, size of pretrain.jsonl, SHA-256 of the checkpoint files and of
///                                   the inputs; removed when the model is complete
///   checkpoint-<step>.safetensors   model and optimiser state
///   config.json, model*.safetensors the model, moved here from .model/ when it is complete
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/format/file_seal.h"
#include "base/format/safetensors.h"

namespace evenkeel::train {

/// The folder of one pre-training. Not thread-safe. The caller holds the folder's lock (base/system/folder_lock.h)
/// while it writes. All functions that write throw kIo when a file cannot be written.
class PretrainingFolder {
 public:
  explicit PretrainingFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  const std::filesystem::path& path() const { return folder_; }
  /// Returns the path of tokenizer.json.
  std::filesystem::path tokenizer() const;
  /// Returns true if a new run may use the folder: it is missing, empty, or holds only the lock and the files of a
  /// begin() that was interrupted before it had written pretrain.toml.
  bool is_free() const;
  /// Returns true if the run is complete: the folder has a config.json and no marker. Other files are not looked at.
  bool finished() const;
  /// Returns the path of the config that the run began with. \throws kIo when no run has started
  std::filesystem::path begun_with() const;

  /// Starts a run: writes the marker of step 0 and pretrain.toml. REQUIRES is_free(), and that the folder exists.
  /// \param resolved  the text of pretrain.toml \param inputs  files that the run reads, named as in pretrain.toml
  void begin(const std::string& resolved, const std::vector<FileSeal>& inputs) const;
  /// Returns the inputs that the run began with; empty if the marker names none or there is no marker.
  /// \throws kCheckpoint when the marker is damaged
  std::vector<FileSeal> inputs() const;
  /// Reads the marker and checks the files that it lists. It changes no file.
  /// \throws kCheckpoint naming a missing or damaged file
  void open();
  /// Removes the lines and checkpoint files that were written after the opened checkpoint, and incomplete files; at
  /// step 0 also the tokenizer. Model files that an interrupted finish() had moved already stay; the next finish()
  /// replaces them. REQUIRES open().
  void roll_back() const;

  /// Removes the config, the tokenizer, the records and the marker, so that a run with another config can start.
  /// REQUIRES step() == 0, because a later checkpoint would be lost.
  void remove_run() const;

  int64_t step() const { return step_; }  ///< step of the checkpoint that open() read; 0 before open()
  TensorMap tensors() const;              ///< tensors of that checkpoint, mapped from the file; empty at step 0
  /// Writes the checkpoint of step `step`, then removes the previous one. Does not change step() and tensors(), which
  /// belong to the opened checkpoint. Does not need open().
  void save(int64_t step, const TensorMap& tensors) const;
  /// Appends a line to pretrain.jsonl and flushes it to disk.
  void record(const OrderedJson& line) const;
  /// Completes the run: `save_model` fills a new folder, its files are moved into this one, then the marker and the
  /// checkpoint are removed.
  /// \throws anything that `save_model` throws
  void finish(const std::function<void(const std::filesystem::path&)>& save_model) const;
  /// Removes a checkpoint file that an interrupted finish() left. REQUIRES finished().
  void remove_old_checkpoint() const { remove_tensors_but(-1); }

 private:
  void write_marker(int64_t step, const std::vector<FileSeal>& files, const std::vector<FileSeal>& inputs) const;
  void remove_tensors_but(int64_t step) const;
  void remove_where(const std::function<bool(const std::filesystem::path&)>& removes) const;

  std::filesystem::path folder_;
  int64_t step_ = 0, record_bytes_ = 0;
};

}  // namespace evenkeel::train
