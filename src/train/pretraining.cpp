#include "train/pretraining.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <tuple>

#include "base/format/limits.h"
#include "base/plain/clock.h"
#include "base/plain/data_path.h"
#include "base/plain/files.h"
#include "base/plain/folders.h"
#include "base/plain/log.h"
#include "base/random/random.h"
#include "base/system/device.h"
#include "base/system/folder_lock.h"
#include "data/builtin_text.h"
#include "models/checkpoint.h"
#include "models/expert_layout.h"
#include "nn/moe/balance_losses.h"
#include "tokenizer/bpe_training.h"
#include "train/make_optimizer.h"
#include "train/pretraining_folder.h"

namespace evenkeel::train {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::string> load_text(const PretrainConfig& config) {
  std::vector<std::string> texts;
  for (const auto& file : config.data.files) texts.push_back(read_file(expand_data_path(file, "data.files")));
  if (config.data.documents > 0) {
    auto generated = data::builtin_documents(config.data.documents, config.seed, config.data.world);
    std::move(generated.begin(), generated.end(), std::back_inserter(texts));
  }
  EK_CHECK(!texts.empty(), kConfig,
           "pretrain: data.files is empty and data.documents is 0: there is no text to train on");
  return texts;
}

void check_fits(const tokenizer::Tokenizer& tokenizer, int64_t vocab_size) {
  EK_CHECK(tokenizer.vocab_size() <= vocab_size, kConfig, "pretrain: the tokenizer has ", tokenizer.vocab_size(),
           " ids, the model's vocab_size is ", vocab_size);
}

/// Returns the path of the tokenizer.json that the config names; empty if a tokenizer is to be trained.
fs::path given_tokenizer(const PretrainConfig& config) {
  if (config.model.tokenizer.empty()) return {};
  const fs::path source = expand_data_path(config.model.tokenizer, "model.tokenizer");
  return is_folder(source) ? source / "tokenizer.json" : source;
}

/// Copies the configured tokenizer, or one trained on the text, to `target`, so that the result is a complete model
/// folder.
tokenizer::Tokenizer install_tokenizer(const PretrainConfig& config, std::span<const std::string> texts,
                                       int64_t vocab_size, const fs::path& target) {
  if (!path_exists(target)) {
    if (const auto source = given_tokenizer(config); !source.empty()) {
      write_file_atomic(target, read_file(source));
    } else {
      log::info("[pretrain] training a tokenizer of ", vocab_size, " ids");
      write_file_atomic(target, tokenizer::train_tokenizer(texts, {.vocab_size = vocab_size}));
    }
  }
  auto tokenizer = tokenizer::Tokenizer::load(target);
  check_fits(tokenizer, vocab_size);
  return tokenizer;
}

/// Concatenates all documents with an eos after each, and cuts the text into sequences of equal length. The remainder
/// is dropped.
class Corpus {
 public:
  Corpus(std::span<const std::string> texts, const tokenizer::Tokenizer& tokenizer, int64_t eos, int64_t length,
         double validation)
      : length_(length) {
    for (const auto& text : texts) {
      const auto ids = tokenizer.encode(text, /*add_special_tokens=*/false);
      ids_.insert(ids_.end(), ids.begin(), ids.end());
      if (eos >= 0) ids_.push_back(static_cast<int32_t>(eos));
    }
    const auto sequences = static_cast<int64_t>(ids_.size()) / length_;
    validation_ = static_cast<int64_t>(std::ceil(validation * static_cast<double>(sequences)));
    training_ = sequences - validation_;
  }

  int64_t training() const { return training_; }
  int64_t validation() const { return validation_; }
  int64_t tokens() const { return static_cast<int64_t>(ids_.size()); }
  std::vector<int64_t> sequence(int64_t index) const {
    const auto start = ids_.begin() + index * length_;
    return {start, start + length_};
  }
  /// Returns a held-out sequence. They follow the training sequences.
  std::vector<int64_t> held_out(int64_t index) const { return sequence(training_ + index); }

 private:
  int64_t length_, training_ = 0, validation_ = 0;
  std::vector<int32_t> ids_;
};

/// Selects the sequences of step `step`. Each epoch has its own permutation, so a resumed run reads the same rows.
class Order {
 public:
  Order(const PretrainConfig& config, int64_t sequences) : seed_(config.seed), sequences_(sequences) {}
  int64_t at(int64_t position) {
    const int64_t epoch = position / sequences_;
    if (epoch != epoch_) {
      permutation_ = RandomStream(seed_, "pretrain-order", epoch).permutation(sequences_);
      epoch_ = epoch;
    }
    return permutation_[position % sequences_];
  }

 private:
  uint64_t seed_;
  int64_t sequences_, epoch_ = -1;
  std::vector<int64_t> permutation_;
};

/// Returns the experts per token of a step; 0: the model's own. Every step has a random stream of its own, so a resumed
/// run draws the same numbers.
int64_t drawn_top_k(const PretrainConfig& config, int64_t step) {
  const auto& choices = config.train.top_k;
  if (choices.empty()) return 0;
  return choices[RandomStream(static_cast<uint64_t>(config.seed), "pretrain-top-k", static_cast<uint64_t>(step))
                     .below(choices.size())];
}

/// \param most  K_max, the experts per token of model.config; 0: it has no experts
void check_top_k(const PretrainConfig& config, int64_t most) {
  for (const int64_t top_k : config.train.top_k)
    EK_CHECK(top_k <= most, kConfig, "train.top_k holds ", top_k, ", allowed: ",
             most > 0 ? concat("up to ", most, ", the experts per token of ") : "an empty list, without experts in ",
             config.model.config);
}

/// \param most  positions of the model
void check_sequence_length(const PretrainConfig& config, int64_t most) {
  EK_CHECK(config.train.sequence_length <= most, kConfig, "train.sequence_length is ", config.train.sequence_length,
           ", allowed: up to ", most, ", the positions of ", config.model.config);
}

void clip_gradients(const std::vector<at::Tensor>& parameters, double limit) {
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : parameters)
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  const auto norm = at::stack(at::_foreach_norm(gradients)).norm().item<double>();
  EK_CHECK(std::isfinite(norm), kNumeric, "pretrain: the gradient is not finite");
  if (limit > 0 && norm > limit) at::_foreach_mul_(gradients, limit / norm);
}

models::BaseStorage storage_of(const PretrainConfig::Model& model) {
  models::BaseStorage storage(models::BaseDtype::kFloat32);
  storage.engine = model.compute().engine;
  storage.device = find_device(model.device, "model.device");
  return storage;
}

/// Copies tensors to the processor. Those that are there already are not copied.
TensorMap on_processor(TensorMap tensors) {
  for (auto& [name, tensor] : tensors) tensor = tensor.to(at::kCPU);
  return tensors;
}

/// Returns the seal of an input, named as in the config.
FileSeal seal_of(const std::string& named) {
  auto seal = FileSeal::of(expand_data_path(named, "data.files"));
  seal.name = named;
  return seal;
}

/// Returns the seals of config.json and of the files of the text.
std::vector<FileSeal> inputs_of(const PretrainConfig& config) {
  std::vector<FileSeal> seals{seal_of(config.model.config)};
  for (const auto& file : config.data.files)
    if (!find_seal(seals, file)) seals.push_back(seal_of(file));
  return seals;
}

/// Checks that a run began with the same config and the same inputs. The device and the engine may differ.
void check_same_run(const PretrainConfig& config, const PretrainingFolder& folder) {
  const auto file = folder.begun_with();
  auto begun = config::read<PretrainConfig>(config::Table::load(file));
  const bool moved =
      std::tie(begun.model.device, begun.model.engine) != std::tie(config.model.device, config.model.engine);
  begun.model.device = config.model.device, begun.model.engine = config.model.engine;
  EK_CHECK(config::write(begun) == config::write(config), kConfig, "the configuration differs from ", file.string(),
           ", which this run began with");
  for (const auto& seal : folder.inputs())
    EK_CHECK(seal_of(seal.name) == seal, kConfig, seal.name, " has changed since ", folder.path().string(),
             " began, allowed: the same content");
  if (moved)
    log::warning("[pretrain] model.device or engine differs from ", file.string(),
                 ": the model will not have the bits of an uninterrupted run");
}

class Pretraining {
 public:
  Pretraining(const PretrainConfig& config, const fs::path& out, models::ExpertLayout experts)
      : config_(config),
        experts_(experts),
        folder_(out),
        model_(models::init_model(config.model.config, storage_of(config.model), config.seed)),
        named_(model_->parameters()),
        optimizer_(make_optimizer(trainable(), config.train.optimizer, config.model.compute().engine)),
        texts_(load_text(config)) {
    check_top_k(config, model_->spec().top_k);
    check_sequence_length(config, model_->spec().max_positions);
    const auto tokenizer = given_tokenizer(config);
    if (!tokenizer.empty() && !path_exists(folder_.tokenizer()))
      check_fits(tokenizer::Tokenizer::load(tokenizer), model_->spec().vocab_size);
  }

  /// Continues from the checkpoint.
  bool run(const StopRequest& stop) {
    folder_.open();
    folder_.roll_back();
    load_data_or_remove_run();
    int64_t step = load_checkpoint();
    log::info("[pretrain] ", corpus_->tokens(), " tokens, ", corpus_->training(), " training and ",
              corpus_->validation(), " validation sequences, ", parameter_count(), " parameters");
    log::Progress progress("pretrain");
    Order order(config_, corpus_->training());
    started_ = Clock::now();
    for (first_ = step; step < config_.train.steps;) {
      const double loss = train_step(step++, order);
      record(step, loss, progress);
      const bool stopping = stop && stop();
      if (stopping || step % config_.train.checkpoint_every == 0 || step == config_.train.steps) save_checkpoint(step);
      if (stopping && step < config_.train.steps) return false;
    }
    finish();
    return true;
  }

 private:
  std::vector<at::Tensor> trainable() {
    std::vector<at::Tensor> parameters;
    for (auto& [name, tensor] : named_) parameters.push_back(tensor.requires_grad_(true));
    return parameters;
  }

  int64_t parameter_count() const {
    int64_t count = 0;
    for (const auto& [name, tensor] : named_) count += tensor.numel();
    return count;
  }

  /// Loads the text. If the text is unsuitable, which only tokenising shows, the run is removed so that another config
  /// can use the folder.
  void load_data_or_remove_run() {
    try {
      load_data();
    } catch (const Error&) {
      if (folder_.step() == 0) folder_.remove_run();
      throw;
    }
  }

  void load_data() {
    const auto tokenizer = install_tokenizer(config_, texts_, model_->spec().vocab_size, folder_.tokenizer());
    corpus_ = std::make_unique<Corpus>(texts_, tokenizer, model_->spec().end_of_text, config_.train.sequence_length,
                                       config_.data.validation);
    EK_CHECK(corpus_->tokens() >= config_.train.sequence_length, kConfig, "pretrain: the text has ", corpus_->tokens(),
             " tokens, too few for one sequence of ", config_.train.sequence_length);
    EK_CHECK(corpus_->training() >= 1, kConfig, "pretrain: data.validation is ", config_.data.validation,
             " and holds out all sequences of the text, of which there are ", corpus_->validation());
    texts_ = {};
  }

  double train_step(int64_t step, Order& order) {
    std::vector<std::vector<int64_t>> sequences;
    for (int64_t i = 0; i < config_.train.batch_size; ++i)
      sequences.push_back(corpus_->sequence(order.at(step * config_.train.batch_size + i)));
    nn::RoutingByLayer routing;
    models::ForwardOptions forward{.compute = config_.model.compute(), .routing = {&routing, 1}};
    forward.router.top_k = drawn_top_k(config_, step);
    const auto task = model_->loss(data::pack_ids(sequences), forward);
    auto total = task.sum / static_cast<double>(task.count);
    const double loss = total.item<double>();
    EK_CHECK(std::isfinite(loss), kNumeric, "pretrain: the loss is not finite at step ", step);
    if (!routing.empty())
      total = total + config_.train.load_balance * nn::load_balance_loss(routing) +
              config_.train.router_z * nn::router_z_loss(routing);
    total.backward();
    clip_gradients(parameters(), config_.train.clip_norm);
    const auto& train = config_.train;
    optimizer_->step(train.optimizer.lr * train.schedule.at(step, train.steps), Gradients::kZeroed);
    return loss;
  }

  std::vector<at::Tensor> parameters() const {
    std::vector<at::Tensor> all;
    for (const auto& [name, tensor] : named_) all.push_back(tensor);
    return all;
  }

  double validation_loss(int64_t top_k, nn::GateNorm gate_norm) const {
    const at::NoGradGuard no_grad;
    double sum = 0;
    int64_t count = 0;
    const int64_t batch = config_.train.batch_size;
    for (int64_t start = 0; start < std::min<int64_t>(corpus_->validation(), 16 * batch); start += batch) {
      std::vector<std::vector<int64_t>> sequences;
      for (int64_t i = start; i < std::min(start + batch, corpus_->validation()); ++i)
        sequences.push_back(corpus_->held_out(i));
      const models::ForwardOptions forward{.router = {.top_k = top_k, .gate_norm = gate_norm},
                                           .compute = config_.model.compute()};
      const auto loss = model_->loss(data::pack_ids(sequences), forward);
      sum += loss.sum.item<double>();
      count += loss.count;
      EK_CHECK(std::isfinite(sum), kNumeric, "pretrain: the loss of held-out sequence ", start,
               " or one behind it in its batch is not finite, K = ", top_k);
    }
    return count > 0 ? sum / static_cast<double>(count) : 0.0;
  }

  void record(int64_t step, double loss, log::Progress& progress) {
    const double speed =
        static_cast<double>((step - first_) * config_.train.batch_size * config_.train.sequence_length) /
        seconds_since(started_);
    const double left =
        seconds_since(started_) / static_cast<double>(step - first_) * static_cast<double>(config_.train.steps - step);
    progress.update(concat("step ", step, "/", config_.train.steps, "  loss ", loss, "  ", std::llround(speed),
                           " tokens/s  ", std::llround(left), " s left"));
    if (step % config_.train.log_every != 0 && step != config_.train.steps) return;
    OrderedJson line{{"step", step}, {"loss", loss}, {"tokens_per_second", std::llround(speed)}};
    if (const int64_t top_k = drawn_top_k(config_, step - 1); top_k > 0) line["top_k"] = top_k;
    folder_.record(line);
  }

  void save_checkpoint(int64_t step) const {
    TensorMap state = optimizer_->state();
    for (const auto& [name, tensor] : named_) state["model." + name] = tensor.detach();
    folder_.save(step, state);
  }

  int64_t load_checkpoint() {
    if (folder_.step() == 0) return 0;
    const at::NoGradGuard no_grad;
    auto tensors = folder_.tensors();
    for (auto& [name, tensor] : named_) {
      const auto saved = tensors.find("model." + name);
      EK_CHECK(saved != tensors.end() && saved->second.sizes() == tensor.sizes(), kCheckpoint, folder_.path().string(),
               ": the checkpoint does not hold ", name, " of this model's shape");
      tensor.copy_(saved->second);
      tensors.erase(saved);
    }
    optimizer_->load_state(tensors);
    return folder_.step();
  }

  /// Records the validation loss at every budget, with the checkpoint's gates and with renormalised gates.
  void record_validation() const {
    if (corpus_->validation() == 0) return;
    const int64_t full = model_->spec().top_k;
    for (int64_t top_k = std::max<int64_t>(full, 1); top_k >= 1; top_k /= 2) {
      OrderedJson line{{"step", config_.train.steps}, {"top_k", model_->spec().num_experts > 0 ? top_k : 0}};
      line["validation_loss"] = validation_loss(full > 0 ? top_k : 0, nn::GateNorm::kCheckpoint);
      if (full > 0) line["validation_loss_renorm_selected"] = validation_loss(top_k, nn::GateNorm::kRenormSelected);
      folder_.record(line);
      log::info("[pretrain] ", line.dump());
    }
  }

  /// Completes the run. The last checkpoint is kept until everything else is written, so an interrupted call can be
  /// repeated.
  void finish() {
    record_validation();
    for (auto& [name, tensor] : named_) tensor.requires_grad_(false);
    const auto weights = on_processor(named_);
    folder_.finish([&](const fs::path& staging) {
      models::write_checkpoint(staging, model_->config_json(), weights, config_.model.dtype,
                               model_->spec().float32_tensors, models::kShardBytes,
                               models::fused_tensors(model_->all_sites(), experts_));
    });
  }

  const PretrainConfig& config_;
  models::ExpertLayout experts_;
  PretrainingFolder folder_;
  std::unique_ptr<models::CausalLm> model_;
  TensorMap named_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<std::string> texts_;  // empty after tokenising
  std::unique_ptr<Corpus> corpus_;
  Clock::time_point started_;
  int64_t first_ = 0;
};

}  // namespace

void PretrainConfig::Train::resolve(const config::Table& table) const {
  table.check_integer("steps", steps, 1, limits::kSteps);
  table.check_integer("sequence_length", sequence_length, 2, limits::kTokens);
  table.check_integer("batch_size", batch_size, 1, limits::kBatch);
  for (const int64_t k : top_k) table.check_entry(k >= 1, "top_k", k, "1 or more");
  table.check_integer("warmup_steps", schedule.warmup, 0, limits::kSteps);
  table.check_integer("log_every", log_every, 1, limits::kSteps);
  table.check_integer("checkpoint_every", checkpoint_every, 1, limits::kSteps);
  table.check_from_zero("final_lr_ratio", schedule.final_ratio);
  table.check_from_zero("clip_norm", clip_norm);
  table.check_from_zero("load_balance", load_balance);
  table.check_from_zero("router_z", router_z);
}

void PretrainConfig::Model::resolve(const config::Table& table) const {
  EK_CHECK(!config.empty(), kConfig, table.full_key("config"), " is missing: the config.json of the model to make");
  table.check(names_compute_device(device), "device", concat('"', device, '"'), "cpu, cuda, cuda:0 and so on, auto");
  nn::check_engine(engine, device, table.place_of("engine"));
}

void PretrainConfig::Model::settle() {
  const bool on_gpu = !find_device(device, "model.device").is_cpu();
  if (device == "auto") device = on_gpu ? "cuda" : "cpu";
  nn::check_engine(engine, device, "");
  engine = compute().engine == nn::EngineKind::kAten ? nn::EngineChoice::kAten : nn::EngineChoice::kKernels;
}

bool pretrain(const PretrainConfig& given, const std::filesystem::path& out, bool resume, const StopRequest& stop,
              models::ExpertLayout experts) {
  auto config = given;
  config.model.settle();
  const auto device = find_device(config.model.device, "model.device");
  settle_device(device);
  require_memory(config, device);
  const PretrainingFolder folder(out);
  const bool begins = folder.is_free();
  EK_CHECK(begins || resume, kIo, out.string(), ": exists already and is not empty; choose another --out");
  if (!begins) check_same_run(config, folder);
  /// Reads all input before `out` is created, so that an input error leaves no folder.
  Pretraining pretraining(config, out, experts);
  make_folders(out);
  const FolderLock lock(out);
  EK_CHECK(begins == folder.is_free(), kIo, out.string(), " has changed meanwhile, another process was at it");
  if (begins) folder.begin(config::write(config), inputs_of(config));
  if (!folder.finished()) return pretraining.run(stop);
  folder.remove_old_checkpoint();
  return true;
}

}  // namespace evenkeel::train
