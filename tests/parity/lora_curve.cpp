/// Writes the training curve of an adapter, for comparison with other programs: fixed batches, AdamW or SGD, no
/// federation.
/// Usage: lora_curve MODEL ADAPTER JOB.json OUT
/// JOB: {"targets": [names], "alpha": a, "rank": r, "optimizer": {"lr", "weight_decay", and "betas", "eps" of AdamW or
///       "momentum" of SGD}, "distillation": {"top_k": K', "weight", "temperature"} or absent,
///       "max_grad_norm": limit, 0: none, "engine": "kernels" or "aten",
///       "batches": [[{"ids": [..], "first_target": n}, ..], ..]}, one optimiser step per batch.
/// OUT/losses.json, OUT/gradients (of the first step) and OUT/adapter (after the last), both in PEFT's layout.
#include <ATen/ATen.h>

#include <iostream>

#include "base/plain/files.h"
#include "base/plain/json.h"
#include "lora/peft.h"
#include "models/causal_lm.h"
#include "nn/engines/engine_of.h"
#include "other_families.h"
#include "train/distillation.h"
#include "train/gradient_norm.h"
#include "train/make_optimizer.h"

namespace evenkeel {
namespace {

train::OptimizerConfig optimizer_of(const Json& job) {
  train::OptimizerConfig config;
  config.lr = job.at("lr");
  config.weight_decay = job.at("weight_decay");
  if (job.contains("momentum")) {
    config.name = train::OptimizerName::kSgd;
    config.momentum = job.at("momentum");
  } else {
    config.betas = job.at("betas").get<std::vector<double>>();
    config.eps = job.at("eps");
  }
  return config;
}

std::vector<data::Example> batch_of(const Json& rows) {
  std::vector<data::Example> batch;
  for (const auto& row : rows) batch.push_back({row.at("ids").get<std::vector<int64_t>>(), row.at("first_target")});
  return batch;
}

std::vector<at::Tensor> leaves_of(lora::AdapterState& adapters) {
  std::vector<at::Tensor> leaves;
  for (auto& [site, factors] : adapters) {
    for (auto* factor : {&factors.a, &factors.b}) {
      *factor = factor->to(at::kFloat).contiguous().clone().set_requires_grad(true);
      leaves.push_back(*factor);
    }
  }
  return leaves;
}

lora::AdapterState gradients_of(const lora::AdapterState& adapters) {
  lora::AdapterState gradients;
  for (const auto& [site, factors] : adapters)
    gradients[site] = {factors.a.grad().clone(), factors.b.grad().clone(), {}, factors.scaling};
  return gradients;
}

/// Adds the gradient of weight tau^2 KL(p(K) || p(K')), averaged over targets.
void distill(const models::CausalLm& model, const data::PackedBatch& batch, models::ForwardOptions forward,
             const at::Tensor& teacher_ND, const Json& job) {
  forward.router.top_k = job.at("top_k");
  const auto weight = job.at("weight").get<double>() / static_cast<double>(teacher_ND.size(0));
  train::backward_of_divergence(
      model, forward,
      {teacher_ND, model.target_hidden(batch, forward), at::full({teacher_ND.size(0)}, weight, teacher_ND.options())},
      job.at("temperature"));
}

void run(const fs::path& model_folder, const fs::path& adapter_folder, const fs::path& job_file, const fs::path& out) {
  const auto model = models::load_model(model_folder);
  const Json job = load_json(job_file);
  const auto targets = job.at("targets").get<std::vector<std::string>>();
  const auto sites = model->sites(targets);
  lora::AdapterState adapters = lora::load_peft_adapter(adapter_folder, sites);
  const auto engine = job.value("engine", "kernels") == "aten" ? nn::EngineKind::kAten : nn::EngineKind::kKernels;
  const double max_norm = job.value("max_grad_norm", 0.0);
  const auto leaves = leaves_of(adapters);
  const auto optimizer = train::make_optimizer(leaves, optimizer_of(job.at("optimizer")), engine);
  const lora::PeftOptions options{.base_model = model_folder.string(), .whole_layers = false};
  models::ForwardOptions forward;
  forward.adapters = &adapters;
  forward.compute.engine = engine;

  std::vector<double> losses;
  for (const auto& rows : job.at("batches")) {
    const auto batch = batch_of(rows);
    const auto packed = data::pack(batch);
    const auto hidden_ND = model->target_hidden(packed, forward);
    const nn::LossSum loss = model->losses(hidden_ND, packed, forward).front();
    const at::Tensor mean = loss.sum / static_cast<double>(loss.count);
    mean.backward();
    if (job.contains("distillation")) distill(*model, packed, forward, hidden_ND.detach(), job.at("distillation"));
    if (losses.empty()) lora::save_peft_adapter(out / "gradients", gradients_of(adapters), sites, options);
    losses.push_back(mean.item<double>());
    if (max_norm > 0) train::clip_gradient_norm(leaves, max_norm, nn::engine_of(engine).step());
    optimizer->step(-1, train::Gradients::kZeroed);
  }
  lora::save_peft_adapter(out / "adapter", lora::clone(adapters), sites, options);
  write_file_atomic(out / "losses.json", Json(losses).dump());
}

}  // namespace
}  // namespace evenkeel

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: lora_curve MODEL ADAPTER JOB.json OUT\n";
    return 1;
  }
  try {
    evenkeel::add_other_families();
    evenkeel::run(argv[1], argv[2], argv[3], argv[4]);
  } catch (const std::exception& error) {
    std::cerr << "lora_curve: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
