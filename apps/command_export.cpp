#include <ATen/ATen.h>

#include <array>
#include <iostream>
#include <memory>
#include <string>

#include "apps/commands.h"
#include "apps/model_options.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "fed/experiment.h"
#include "fed/run_folder.h"
#include "lora/gguf.h"
#include "lora/modules.h"
#include "lora/peft.h"
#include "models/checkpoint.h"

namespace evenkeel {
namespace {

enum class Format { kPeft, kPeftFused, kMerged, kGguf };
constexpr auto names(Format) {
  return std::array{
      config::EnumName<Format>{"peft", Format::kPeft}, config::EnumName<Format>{"peft-fused", Format::kPeftFused},
      config::EnumName<Format>{"merged", Format::kMerged}, config::EnumName<Format>{"gguf", Format::kGguf}};
}

struct ExportFlags {
  std::string run, model, adapter, format = "peft", out, dtype = "checkpoint";
};

/// An adapter and what it belongs to.
struct Trained {
  AdapterState adapters;
  Sites sites;
  ModelSpec model;
  PeftInfo info;
  bool renormalises = false;  ///< gates were trained with weights renormalised over the selected experts
  bool modulates = false;     ///< an evaluation adds phi to the scores of routers
  bool rescales = false;      ///< an evaluation multiplies the outputs of MoE layers
};

Trained read_adapter(const ExportFlags& flags) {
  const auto base = resolve_model_path(flags.model);
  const auto model = load_shape(base);
  auto adapters = load_peft_adapter(flags.adapter, model->all_sites());
  const auto info = peft_info(base.string(), adapters);
  return {.adapters = std::move(adapters), .sites = model->all_sites(), .model = model->spec(), .info = info};
}

/// Of a run's last committed round.
Trained read_run(const fs::path& folder) {
  const auto config = run_config(folder);
  const auto last = Checkpoint(folder / "checkpoint").read();
  EK_CHECK(last.commit.round > 0, kIo, folder.string(), ": no round is committed yet, there is nothing to export");
  const auto& state = last.snapshot.state;
  auto adapters = whole_adapter(state);
  EK_CHECK(!adapters.empty(), kCheckpoint, last.folder.string(),
           ": the state holds no adapter, there is nothing to export");
  const auto base = resolve_model_path(config.model.path);
  const auto server = make_server(config, *load_shape(base));
  check_state(state, server.sites,
              concat((last.folder / "state.safetensors").string(), " on the base model ", base.string()));
  const auto router = server.setup_of(state, server.evaluator({})).router;
  const auto info = peft_info(base.string(), adapters);
  return {.adapters = std::move(adapters),
          .sites = server.sites,
          .model = server.model,
          .info = info,
          .renormalises = router.gate_norm == GateNorm::kRenormSelected,
          .modulates = !router.modulation.empty(),
          .rescales = router.output_scale.defined()};
}

at::Tensor merged_weight(const at::Tensor& base, const LoraFactors& factors, at::ScalarType type) {
  auto sum = delta_weight(factors).to(at::kFloat);
  EK_CHECK(sum.sizes() == base.sizes(), kShape, "merge: the update is ", sum.sizes(), ", the weight ", base.sizes());
  return sum.add_(base).to(type);
}

/// Weights renormalised over the selected experts are what the family's own key says in a config.json.
std::string merged_config(const CausalLm& model, bool renormalises) {
  auto config = OrderedJson::parse(model.config_json());
  const auto& gates = model.spec().gates;
  EK_CHECK(!renormalises || gates.renormalise || !gates.key.empty(), kConfig, "the run renormalised gate weights over ",
           "the selected experts, which no config.json of family ", model.spec().family, " says: export an adapter");
  if (renormalises && !gates.key.empty()) config[gates.key] = true;
  return config.dump(2) + "\n";
}

void copy_tokenizer(const fs::path& from, const fs::path& to) {
  for (const auto* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                           "generation_config.json", "vocab.json", "merges.txt", "chat_template.jinja"})
    if (path_exists(from / name)) write_file_atomic(to / name, read_file(from / name));
}

void save_merged(const fs::path& out, const ExportFlags& flags, const Trained& trained) {
  const auto dtype = parse_enum<BaseDtype>("--dtype", flags.dtype);
  const auto model = load_model(trained.info.base_model);
  auto weights = model->parameters();
  for (const auto& [module, factors] : factors_by_module(trained.adapters, trained.sites)) {
    auto& weight = weights.at(module + ".weight");
    weight = merged_weight(weight, factors, scalar_type(dtype).value_or(weight.scalar_type()));
  }
  write_checkpoint(out, merged_config(*model, trained.renormalises), std::move(weights), dtype, kShardBytes);
  copy_tokenizer(trained.info.base_model, out);
}

void save_gguf(const fs::path& out, const Trained& trained) {
  const auto& architecture = trained.model.gguf.architecture;
  EK_CHECK(!architecture.empty(), kConfig, "llama.cpp has no architecture for family ", trained.model.family);
  save_gguf_adapter(out / "adapter.gguf", trained.adapters, trained.sites, architecture);
}

void save_adapter(const fs::path& out, Format format, const Trained& trained) {
  if (format == Format::kGguf) return save_gguf(out, trained);
  const auto save = format == Format::kPeft ? save_peft_adapter : save_fused_peft_adapter;
  save(out, trained.adapters, trained.sites, trained.info);
}

void run_export(const ExportFlags& flags) {
  const auto format = parse_enum<Format>("--format", flags.format);
  EK_CHECK(format == Format::kMerged || flags.dtype == "checkpoint", kConfig,
           "--dtype is for --format merged; adapters are float32");
  EK_CHECK(flags.run.empty() != flags.adapter.empty() && flags.adapter.empty() == flags.model.empty(), kConfig,
           "export takes --run, or --adapter with --model");
  const auto trained = flags.run.empty() ? read_adapter(flags) : read_run(flags.run);
  if (trained.modulates)
    log::warning("[export] the run adds phi to its router scores, which no format of these holds: elsewhere the model ",
                 "routes as here with phi_at_eval = false");
  if (trained.rescales)
    log::warning(
        "[export] the run multiplies the outputs of MoE layers, which no format of these holds: elsewhere they ",
        "are as with rescaler = \"off\"");
  AtomicFolder staged(flags.out);
  if (format == Format::kMerged) {
    save_merged(staged.path(), flags, trained);
  } else {
    save_adapter(staged.path(), format, trained);
    if (trained.renormalises && !trained.model.gates.key.empty())
      log::warning("[export] the run renormalised gate weights over the selected experts: set ",
                   trained.model.gates.key, " to true in the base model's config where this adapter is used");
  }
  staged.commit();
  std::cerr << "written to " << flags.out << '\n';
}

}  // namespace

void add_export_command(CLI::App& program) {
  auto flags = std::make_shared<ExportFlags>();
  auto* command = program.add_subcommand("export", "an adapter for PEFT or llama.cpp, or merged into its base model");
  command->description(
      "Example: evenkeel export --run runs/demo-ub-smoe --format merged --out models/demo-merged\n\n"
      "Writes the adapter of a run's last committed round, or one that PEFT saved.\n"
      "peft: one Linear per expert and projection, for PEFT 0.17 and 0.21 and what else reads adapters\n"
      "peft-fused: the same on fused expert tensors, for PEFT 0.21 alone; 0.17 loads it without a word, and wrong\n"
      "merged: a full checkpoint, added in float32, held in memory while it is written\n"
      "gguf: adapter.gguf, for llama.cpp's --lora");
  command->add_option("--run", flags->run, "run folder");
  command->add_option("--model", flags->model, "instead of a run: Hugging Face folder of the base model");
  command->add_option("--adapter", flags->adapter, "with --model: PEFT folder of its adapter");
  command->add_option("--format", flags->format, "peft, peft-fused, merged or gguf")->capture_default_str();
  command->add_option("--out", flags->out, "output folder, new or empty")->required();
  command
      ->add_option("--dtype", flags->dtype,
                   "of merged weights: checkpoint (as in the base), float32, bfloat16, float64")
      ->capture_default_str();
  command->callback([flags] { run_export(*flags); });
}

}  // namespace evenkeel
