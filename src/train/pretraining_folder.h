/// \file  The folder in which a model is pre-trained: records and one checkpoint, sealed (base/plain/sealed.h), so that
/// a process may be killed at any instant. Everything is checked before anything is removed.
///
///   pretrain.toml                   resolved config; its presence makes the run
///   pretrain.jsonl                  the loss curve, a sealed line per record
///   tokenizer.json                  of the model to be
///   checkpoint.json                 the marker: step, bytes of pretrain.jsonl then, SHA-256 of the files beside
///                                   it; stands from step 0 until the model does
///   checkpoint-<step>.safetensors   model and optimiser
///   config.json, model*.safetensors the model, moved here from .model/ when it is finished
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/format/safetensors.h"
#include "base/plain/sealed.h"

namespace evenkeel {

class PretrainingFolder {
 public:
  explicit PretrainingFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  const std::filesystem::path& path() const { return folder_; }
  std::filesystem::path tokenizer() const;
  /// Nothing is there but what a process leaves that is killed before pretrain.toml stands.
  bool nothing_began() const;
  /// The model stands, and no checkpoint any more.
  bool finished() const;
  /// \throws kIo when no pre-training began there, kConfig when it began with another config.
  void check_resumable(const std::string& resolved) const;

  /// Writes the marker of step 0 and pretrain.toml. REQUIRES nothing_began().
  void begin(const std::string& resolved) const;
  /// Reads the marker. \throws kCheckpoint naming what is missing or damaged; nothing is changed.
  void open();
  /// Back to the checkpoint that was opened: what came after it will be made again.
  void settle() const;

  /// Removes what stands of a run before its first step, so that another config may begin there. REQUIRES step() of 0.
  void forget() const;

  int64_t step() const { return step_; }  ///< of the checkpoint that was opened
  TensorMap tensors() const;              ///< of it, views of the file; none at step 0
  /// A new checkpoint after `step` steps in place of the last.
  void save(int64_t step, const TensorMap& tensors) const;
  void record(const OrderedJson& line) const;
  /// `save_model` fills a new folder; what it holds is moved into this one, and the checkpoint goes.
  void finish(const std::function<void(const std::filesystem::path&)>& save_model) const;
  /// Removes what a process leaves that is killed while it removes the checkpoint. REQUIRES finished().
  void tidy() const { remove_tensors_but(-1); }

 private:
  void write_marker(int64_t step, const std::vector<FileSeal>& files) const;
  void remove_tensors_but(int64_t step) const;
  void remove_where(const std::function<bool(const std::filesystem::path&)>& goes) const;

  std::filesystem::path folder_;
  int64_t step_ = 0, record_bytes_ = 0;
};

}  // namespace evenkeel
