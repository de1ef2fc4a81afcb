#include <iostream>
#include <memory>
#include <string>

#include "apps/commands.h"
#include "apps/model_options.h"
#include "apps/output_paths.h"

namespace evenkeel::apps {
namespace {

struct InitFlags {
  std::string config, out, dtype = "float32", experts = "original";
  int64_t seed = 42;
};

void run_init(const InitFlags& flags) {
  const auto dtype = parse_enum<models::BaseDtype>("--dtype", flags.dtype);
  EK_CHECK(dtype != models::BaseDtype::kCheckpoint, kConfig, "--dtype is checkpoint, but there is no checkpoint yet");
  EK_CHECK(flags.seed >= 0, kConfig, "--seed is ", flags.seed, ", allowed: 0 or more");
  const auto experts = parse_enum<models::ExpertLayout>("--experts", flags.experts);
  check_not_kept("--out", flags.out);
  const NewFolders folders(flags.out);
  models::write_random_model(flags.config, flags.out, dtype, static_cast<uint64_t>(flags.seed), models::kShardBytes,
                             experts);
  std::cerr << "the model is in " << flags.out << "; it has no tokenizer.json yet\n";
}

}  // namespace

void add_init_command(CLI::App& program) {
  auto flags = std::make_shared<InitFlags>();
  auto* command = program.add_subcommand("init", "a randomly initialised checkpoint of a model config");
  command->footer(
      "Example: evenkeel init configs/tiny/model.json --out models/random --seed 1 --dtype bfloat16\n\n"
      "Writes a Hugging Face folder with random weights, for tests and measurements. Tensors are written\n"
      "one by one, so it needs memory for the largest of them only.");
  command->add_option("CONFIG", flags->config, "a model's config.json")->required();
  command->add_option("--out", flags->out, "output folder, new or empty")->required();
  command->add_option("--seed", flags->seed, "seed of the weights")->capture_default_str();
  command->add_option("--dtype", flags->dtype, "float32, bfloat16 or float64")->capture_default_str();
  command
      ->add_option(
          "--experts", flags->experts,
          "original (as the family's checkpoints on the hub have them) or fused (as transformers 5 computes with "
          "them)")
      ->capture_default_str();
  command->callback([flags] { run_init(*flags); });
}

}  // namespace evenkeel::apps
