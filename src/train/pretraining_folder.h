/// \file  Manages the folder of a pre-training: records and one checkpoint, both sealed (base/plain/sealed.h). The
/// process may be killed at any time without losing the checkpoint. All files are checked before any of them is
/// removed.
///
///   pretrain.toml                   config with all keys; exists from the start of a run
///   pretrain.jsonl                  the loss curve, one sealed line per record
///   tokenizer.json                  tokenizer of the model
///   checkpoint.json                 the marker: step, size of pretrain.jsonl, SHA-256 of the checkpoint files;
///                                   removed when the model is complete
///   checkpoint-<step>.safetensors   model and optimiser state
///   config.json, model*.safetensors the model, moved here from .model/ when it is complete
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/format/safetensors.h"
#include "base/plain/sealed.h"

namespace evenkeel::train {

/// The folder of one pre-training.
class PretrainingFolder {
 public:
  explicit PretrainingFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  const std::filesystem::path& path() const { return folder_; }
  /// Returns the path of tokenizer.json.
  std::filesystem::path tokenizer() const;
  /// Returns true if no run has started in the folder. A run starts when pretrain.toml is written.
  bool nothing_began() const;
  /// Returns true if the folder contains a complete model and no checkpoint.
  bool finished() const;
  /// Checks that a run with the same config has started.
  /// \param resolved  the config with all keys, as TOML
  /// \throws kIo when no run has started; kConfig when the config differs
  void check_resumable(const std::string& resolved) const;

  /// Starts a run: writes the marker of step 0 and pretrain.toml. REQUIRES nothing_began().
  void begin(const std::string& resolved) const;
  /// Reads the marker and checks the files that it lists. It changes no file.
  /// \throws kCheckpoint naming a missing or damaged file
  void open();
  /// Removes everything that was written after the opened checkpoint. REQUIRES open().
  void settle() const;

  /// Removes the files of a run before its first checkpoint, so that a run with another config can start. REQUIRES
  /// step() == 0.
  void forget() const;

  int64_t step() const { return step_; }  ///< step of the opened checkpoint
  TensorMap tensors() const;              ///< tensors of the opened checkpoint, mapped from the file; empty at step 0
  /// Writes the checkpoint of step `step`, then removes the previous one.
  void save(int64_t step, const TensorMap& tensors) const;
  /// Appends a line to pretrain.jsonl.
  void record(const OrderedJson& line) const;
  /// Completes the run: `save_model` fills a new folder, its files are moved into this one, and the checkpoint is
  /// removed.
  void finish(const std::function<void(const std::filesystem::path&)>& save_model) const;
  /// Removes a checkpoint file that an interrupted finish() left. REQUIRES finished().
  void tidy() const { remove_tensors_but(-1); }

 private:
  void write_marker(int64_t step, const std::vector<FileSeal>& files) const;
  void remove_tensors_but(int64_t step) const;
  void remove_where(const std::function<bool(const std::filesystem::path&)>& removes) const;

  std::filesystem::path folder_;
  int64_t step_ = 0, record_bytes_ = 0;
};

}  // namespace evenkeel::train
