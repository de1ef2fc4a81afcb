#include "fed/config/run_config.h"

#include <gtest/gtest.h>

#include <array>

#include "base/testing.h"

namespace evenkeel::fed {
namespace {

ExperimentConfig read(std::string_view text) { return ExperimentConfig::read(config::Table::parse(text, "test.toml")); }

/// Returns the error message of an invalid config.
std::string complaint(std::string_view text) {
  try {
    read(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kConfig) << error.what();
    return error.what();
  }
  return "accepted";
}

void expect_complaint(std::string_view text, std::vector<std::string> words) {
  const auto line = complaint(text);
  EXPECT_NE(line.find("test.toml"), std::string::npos) << line << "\ndoes not say where it stands";
  for (const auto& word : words) EXPECT_NE(line.find(word), std::string::npos) << line << "\nlacks: " << word;
  EXPECT_EQ(line.find('\n'), std::string::npos) << line;
}

TEST(ExperimentConfig, AnEmptyFileHasThePapersDefaults) {
  const auto config = read("");
  EXPECT_EQ(config.seed, 42);
  EXPECT_EQ(config.lora.rank, 20);
  EXPECT_EQ(config.lora.alpha, 20);
  EXPECT_EQ(config.train.rounds, 10);
  EXPECT_DOUBLE_EQ(config.train.local_epochs, 0.4);
  EXPECT_DOUBLE_EQ(config.train.optimizer.lr, 2e-4);
  EXPECT_DOUBLE_EQ(config.train.optimizer.eps, 1e-5);
  EXPECT_EQ(config.clients.count, 8);
  EXPECT_EQ(config.method.name, "ub-smoe");
}

TEST(ExperimentConfig, TheSettledTextReadsBackEqual) {
  const auto config = read(R"(
name = "x"
threads = 2
[model]
compute_dtype = "float32"
[data]
partition = { kind = "dirichlet", alpha = 0.3 }
[clients]
count = 5
[method]
name = "fedit"
gate_norm = "renorm_selected"
[method.ub-smoe]
phi_momentum = 0.7
[train]
optimizer = { lr = 1.7e-3 }
)");
  const std::string text = settle(config, {})->text();
  const auto again = read(text);
  EXPECT_EQ(again.text(), text);
  EXPECT_EQ(again.clients.budgets.list, (std::vector<double>{0.125, 0.25, 0.5, 1.0, 0.125}));
  EXPECT_EQ(again.output.dir, "runs/x");
  EXPECT_NE(text.find("phi_momentum = 0.7"), std::string::npos) << text;
  EXPECT_NE(text.find("renorm_selected"), std::string::npos) << text;
}

TEST(ExperimentConfig, DefaultThreadsAreDividedAmongParallelClients) {
  const auto threads = [](const std::string& text, int64_t machine) {
    const auto config = read(text + "\n[model]\ncompute_dtype = \"float32\"");
    return settle(config, {.threads = machine, .products = {}})->threads;
  };
  EXPECT_EQ(threads("", 7), 7);
  EXPECT_EQ(threads("clients.parallel = 3", 7), 2);
  EXPECT_EQ(threads("clients.parallel = 3", 2), 1);
  EXPECT_EQ(threads("clients.parallel = 3\nthreads = 5", 7), 5);
}

TEST(ExperimentConfig, PartitionKeyLabelsTelequadRows) {
  const auto config = read(R"(
seed = 5
[data]
task = "telequad"
path = "x"
partition = { kind = "dirichlet", key = "docid" }
telequad = { split = "specs", split_seed = 3, train_share = 0.25, impossible = true }
)");
  const auto rows = config.rows(7);
  EXPECT_EQ(rows.label, "docid");
  EXPECT_EQ(rows.limit, 7);
  EXPECT_EQ(rows.seed, 5u);
  EXPECT_EQ(rows.telequad.split, data::TelequadSplit::kSpecs);
  EXPECT_EQ(rows.telequad.split_seed, 3);
  EXPECT_TRUE(rows.telequad.impossible);
}

TEST(ExperimentConfig, AFloat32CheckpointIsComputedInFloat32) {
  const auto config = settle(read("[model]\ndtype = \"float32\"\n"), {.products = nn::MatmulKernel::kBf16Dot});
  EXPECT_EQ(config->model.compute_dtype, ComputeDtype::kFloat32);
}

TEST(ExperimentConfig, ChosenKernelsAreWrittenAndReadBackEqual) {
  nn::MatmulTable chosen;
  chosen.set(nn::GemmContext::kLinear, nn::Direction::kForward, 300, nn::MatmulKernel::kBf16Vendor);
  const auto config = settle(read(""), {.products = chosen});
  EXPECT_EQ(config->model.compute_dtype, ComputeDtype::kMeasured);
  EXPECT_EQ(config->model.product_table(), chosen);
  const auto again = settle(read(config->text()), {.products = nn::MatmulKernel::kUpcast});  // of another machine
  EXPECT_EQ(again->text(), config->text());
  EXPECT_EQ(again->model.product_table(), chosen);
}

TEST(ExperimentConfig, EqualKernelsAreWrittenAsOneWord) {
  for (const auto& [kernel, dtype] : {std::pair{nn::MatmulKernel::kFp32Exact, ComputeDtype::kFloat32},
                                      std::pair{nn::MatmulKernel::kBf16Dot, ComputeDtype::kBFloat16}}) {
    const auto config = settle(read(""), {.products = kernel});
    EXPECT_EQ(config->model.compute_dtype, dtype);
    EXPECT_FALSE(config->model.products.given());
    EXPECT_EQ(config->model.product_table(), nn::MatmulTable(kernel));
  }
}

TEST(ExperimentConfig, ListedKernelsDetermineTheProducts) {
  const std::string eight = R"(["own", "own", "own", "widen", "own", "own", "native", "native"])";
  const auto lists = [&](std::string_view dtype) {
    return concat("[model]\ncompute_dtype = \"", dtype, "\"\n[model.products]\nexpert_forward = ", eight,
                  "\nexpert_backward = ", eight, "\nlinear_forward = ", eight, "\nlinear_backward = ", eight, "\n");
  };
  const auto config = settle(read(lists("auto")), {});
  EXPECT_EQ(config->model.compute_dtype, ComputeDtype::kMeasured);
  const auto products = config->model.product_table();
  EXPECT_EQ(products.at(nn::GemmContext::kExpert, nn::Direction::kBackward, 17), nn::MatmulKernel::kUpcast);
  EXPECT_EQ(products.at(nn::GemmContext::kLinear, nn::Direction::kForward, 2048), nn::MatmulKernel::kBf16Vendor);
  expect_complaint(lists("float32"), {"model.compute_dtype", "float32", "measured or auto"});
  expect_complaint("[model]\ncompute_dtype = \"measured\"\n", {"model.compute_dtype", "lists no kernels"});
  expect_complaint(concat("[model.products]\nlinear_forward = ", eight, "\n"), {"model.products", "1 lists", "all of"});
}

TEST(ExperimentConfig, AnInt8BaseAllowsNoOtherDtype) {
  expect_complaint("[model]\nbase_format = \"int8\"\ndtype = \"bfloat16\"\n",
                   {"model.dtype", "bfloat16", "checkpoint"});
  auto config = read("[model]\nbase_format = \"int8\"\n");
  const auto here = fs::current_path();
  for (const auto* run : {"runs/x", "runs/x/", "runs/x/."})
    EXPECT_EQ(config.model.storage(run).cache, here / "runs/.evenkeel-cache") << run;
  EXPECT_EQ(config.model.storage(".").cache, here.parent_path() / ".evenkeel-cache");
  config.model.base_cache = "elsewhere";
  EXPECT_EQ(config.model.storage("runs/x").cache, "elsewhere");
}

TEST(ExperimentConfig, TheDeviceDeterminesEngineAndTypes) {
  const auto config = settle(read(""), {});
  EXPECT_EQ(config->model.device, "cpu");
  EXPECT_EQ(config->model.engine, EngineChoice::kKernels);
  EXPECT_EQ(config->model.compute().engine, nn::EngineKind::kKernels);
  for (const auto* device : {"cuda", "cuda:1", "auto"}) {
    const auto on_gpu =
        settle(read(concat("[model]\ndevice = \"", device, "\"\n")), {.threads = 1, .products = {}, .device = "cuda"});
    EXPECT_EQ(on_gpu->model.device, std::string_view(device) == "auto" ? "cuda" : device);
    EXPECT_EQ(on_gpu->model.compute(), (nn::Compute{.engine = nn::EngineKind::kAten, .inner = at::kBFloat16}))
        << device;
    EXPECT_EQ(on_gpu->model.storage("x").engine, nn::EngineKind::kAten);
    const auto again = read(on_gpu->text());
    EXPECT_EQ(again.text(), on_gpu->text());
  }
  const auto exact = settle(read("[model]\ndevice = \"cuda\"\ncompute_dtype = \"float32\"\n"), {});
  EXPECT_EQ(exact->model.compute(), (nn::Compute{.engine = nn::EngineKind::kAten, .inner = at::kFloat}));
  const auto wide = settle(read("[model]\ndevice = \"cuda\"\ndtype = \"float32\"\n"), {});
  EXPECT_EQ(wide->model.compute().inner, at::kFloat);
  const auto operators = settle(read("[model]\nengine = \"aten\"\n"), {});
  EXPECT_EQ(operators->model.compute(), (nn::Compute{.engine = nn::EngineKind::kAten, .inner = at::kFloat}));
  const auto neither = settle(read("[model]\ndevice = \"auto\"\n"), {});
  EXPECT_EQ(neither->model.device, "cpu");
}

TEST(ExperimentConfig, GraphsAreSettledByWhatTheMachineCan) {
  const auto chosen = [](const std::string& graphs, const std::string& why_not) {
    return settle(read("[model]\ndevice = \"cuda\"\ngraphs = \"" + graphs + "\"\n"),
                  {.products = {}, .no_graphs = why_not})
        ->model.graphs;
  };
  EXPECT_EQ(chosen("auto", ""), GraphsChoice::kOn);
  EXPECT_EQ(chosen("auto", "there is no library"), GraphsChoice::kOff);
  EXPECT_EQ(chosen("on", ""), GraphsChoice::kOn);
  EXPECT_EQ(chosen("off", ""), GraphsChoice::kOff);
  EXPECT_EQ(testing::refusal([&] { chosen("on", "there is no library"); }),
            "[config] model.graphs is \"on\", but there is no library; auto or off computes without");
  EXPECT_EQ(settle(read(""), {})->model.graphs, GraphsChoice::kOff) << "on a processor";
}

TEST(ExperimentConfig, UnsupportedSettingsOfAGpuAreRefusedByName) {
  const std::string gpu = "[model]\ndevice = \"cuda\"\n";
  expect_complaint("[model]\ndevice = \"gpu\"\n", {"model.device is \"gpu\"", "cpu, cuda", "line 2"});
  expect_complaint(gpu + "engine = \"kernels\"\n", {"model.engine is \"kernels\"", "allowed: aten", "line 3"});
  expect_complaint(gpu + "engine = \"cuda\"\n", {"model.engine", "auto, kernels, aten"});
  expect_complaint("[model]\ngraphs = \"on\"\n", {"model.graphs is \"on\"", "allowed: auto or off", "cpu", "line 2"});
  expect_complaint(gpu + "graphs = \"yes\"\n", {"model.graphs is \"yes\"", "auto, on, off"});
  expect_complaint(gpu + "base_format = \"int8\"\n", {"model.base_format is int8", "stored"});
  expect_complaint("[model]\nengine = \"aten\"\nbase_format = \"int8\"\n", {"model.base_format is int8", "stored"});
  expect_complaint(gpu + "[clients]\nparallel = 2\n", {"clients.parallel is 2", "allowed: 1", "cuda"});
  const std::string eight = R"(["own", "own", "own", "own", "own", "own", "own", "own"])";
  const auto lists = concat("[model.products]\nexpert_forward = ", eight, "\nexpert_backward = ", eight,
                            "\nlinear_forward = ", eight, "\nlinear_backward = ", eight, "\n");
  expect_complaint(gpu + lists, {"model.products", "none", "aten"});
  expect_complaint(gpu + "compute_dtype = \"measured\"\n" + lists, {"model.compute_dtype is \"measured\"", "bfloat16"});
  const auto found_later = read("[model]\ndevice = \"auto\"\n[clients]\nparallel = 2\n");
  EXPECT_THROW(settle(found_later, {.threads = 1, .products = {}, .device = "cuda"}), Error);
  const auto kernels = read("[model]\ndevice = \"auto\"\nengine = \"kernels\"\n");
  EXPECT_THROW(settle(kernels, {.threads = 1, .products = {}, .device = "cuda"}), Error);
}

TEST(ExperimentConfig, EveryKeyHasAHelpLine) {
  const auto config = read("");
  std::istringstream text(config.text(true));
  for (std::string line; std::getline(text, line);) {
    if (line.find(" = ") == std::string::npos) continue;
    EXPECT_NE(line.find('#'), std::string::npos) << line;
  }
}

TEST(ExperimentConfig, AnUnknownKeyIsReportedWithTheKnownKeys) {
  expect_complaint("[train]\nrouns = 3\n", {"train.rouns", "rounds", "local_epochs"});
  expect_complaint("sed = 3\n", {"sed", "seed", "model"});
  expect_complaint("[method.ub-smoe]\nphi_momentm = 0.5\n", {"method.ub-smoe.phi_momentm", "phi_momentum"});
  expect_complaint("[method]\nnam = \"fedit\"\n",
                   {"method.nam is not a known key", "line 2", "known: name, gate_norm", "fedit"});
}

TEST(ExperimentConfig, TheTableOfAnUnselectedMethodIsChecked) {
  expect_complaint("[method]\nname = \"fedit\"\n[method.ub-smoe]\npg_clip = -1.0\n", {"pg_clip"});
  expect_complaint("[method]\nname = \"fedavg\"\n", {"fedavg", "fedit", "ub-smoe"});
}

TEST(ExperimentConfig, BudgetsMustMatchTheClientCount) {
  expect_complaint("[clients]\ncount = 3\nbudgets = [0.5, 1.0]\n", {"clients.budgets", "2", "3"});
  expect_complaint("[clients]\ncount = 2\nbudgets = [0.5, 1.5]\n", {"clients.budgets", "1.5"});
  expect_complaint("[clients]\ncount = 1\nranks = [21]\n", {"clients.ranks", "21", "20"});
}

TEST(ExperimentConfig, RanksOfARankMethodFollowThePaper) {
  constexpr std::array kBudgets{0.125, 0.25, 0.5, 1.0};
  constexpr std::array<int64_t, 4> kSparse{6, 8, 12, 20}, kDense{12, 16, 24, 40};
  const auto& flexlora = methods::find_method("flexlora");
  for (size_t i = 0; i < kBudgets.size(); ++i) {
    EXPECT_EQ(flexlora.rank(kBudgets[i], 20), kSparse[i]);
    EXPECT_EQ(flexlora.rank(kBudgets[i], 40), kDense[i]);
    EXPECT_EQ(flexlora.top_k(kBudgets[i], 8), 8);
    EXPECT_EQ(methods::find_method("fedit").rank(kBudgets[i], 40), 40);
    EXPECT_EQ(methods::find_method("fedit").top_k(kBudgets[i], 8), 1 << i);
  }
}

TEST(ExperimentConfig, GateNormDefaultsToTheMethods) {
  EXPECT_EQ(read("").method.gate_norm, nn::GateNorm::kRenormSelected);
  EXPECT_EQ(read("method = { name = \"fedit\" }").method.gate_norm, nn::GateNorm::kCheckpoint);
  EXPECT_EQ(read("method = { name = \"fedit\", gate_norm = \"renorm_selected\" }").method.gate_norm,
            nn::GateNorm::kRenormSelected);
  expect_complaint("method = { gate_norm = \"softmax\" }",
                   {"method.gate_norm", "softmax", "renorm_selected", "line 1"});
  expect_complaint("[method.fedit]\ngate_norm = \"olmoe_native\"\n", {"method.fedit.gate_norm", "line 2"});
}

TEST(ExperimentConfig, ValuesOutOfRangeAreReportedWithTheAllowedOnes) {
  expect_complaint("[train]\nrounds = 0\n", {"train.rounds", "0", "1 or more"});
  expect_complaint("[train]\nrounds = \"ten\"\n", {"train.rounds"});
  expect_complaint("[clients]\nparticipation = 0.0\n", {"clients.participation"});
  expect_complaint("[data]\ntask = \"telegram\"\n", {"telegram", "commonsense", "builtin"});
  expect_complaint("[data]\ntask = \"commonsense\"\n", {"data.path"});
  expect_complaint("[data]\npartition = { kind = \"dirichlet\", key = \"docid\" }\n",
                   {"data.partition.key", "docid", "label"});
  expect_complaint("[data]\ntask = \"telequad\"\npath = \"x\"\npartition = { kind = \"dirichlet\", key = \"title\" }\n",
                   {"data.partition.key", "telequad", "spec", "source", "docid"});
  expect_complaint("[data.telequad]\nsplit = \"halves\"\n", {"data.telequad.split", "halves", "order", "questions"});
  expect_complaint("[data.telequad]\ntrain_share = 0.0\n", {"data.telequad.train_share", "at most 1"});
  expect_complaint("[evaluate.bert_score]\nlayer = -2\n", {"evaluate.bert_score.layer", "-1 or more"});
  expect_complaint("[evaluate.bert_score]\nidf = true\n", {"evaluate.bert_score.encoder", "empty"});
  expect_complaint("[evaluate]\nrank_eval_modes = [\"c\"]\n", {"evaluate.rank_eval_modes", "a, b"});
  expect_complaint("[evaluate]\ntasks = [\"arc_x\"]\n", {"arc_x"});
  expect_complaint("name = \"a/b\"\n", {"name", "a/b"});
}

struct TooMuch {
  const char* key;
  const char* value;
};

/// These values exceed the memory of any machine, float32, or 64-bit products. They must be refused before allocation.
TEST(ExperimentConfig, NumbersAboveTheirLimitAreRefusedWithTheLimit) {
  constexpr std::array kCases{TooMuch{"threads", "4294967297"},
                              TooMuch{"lora.rank", "1000000000000"},
                              TooMuch{"lora.alpha", "1e308"},
                              TooMuch{"data.cutoff", "9223372036854775807"},
                              TooMuch{"data.limit", "1000000000000000"},
                              TooMuch{"data.partition.alpha", "1e300"},
                              TooMuch{"clients.count", "1000000000000"},
                              TooMuch{"train.rounds", "4611686018427387904"},
                              TooMuch{"train.local_epochs", "1e300"},
                              TooMuch{"train.batch_size", "4611686018427387904"},
                              TooMuch{"train.accumulation", "4611686018427387904"},
                              TooMuch{"train.optimizer.lr", "1e30"},
                              TooMuch{"train.optimizer.eps", "1e300"},
                              TooMuch{"train.optimizer.weight_decay", "1e300"},
                              TooMuch{"evaluate.limit", "1000000000000000"},
                              TooMuch{"evaluate.max_new_tokens", "9223372036854775807"},
                              TooMuch{"evaluate.cutoff", "9223372036854775807"},
                              TooMuch{"evaluate.batch_size", "4611686018427387904"},
                              TooMuch{"evaluate.every", "9223372036854775807"},
                              TooMuch{"evaluate.bert_score.layer", "9223372036854775807"}};
  for (const auto& [key, value] : kCases) {
    auto table = config::Table::parse("", "unit.toml");
    table.set(concat(key, "=", value));
    try {
      ExperimentConfig::read(table);
      ADD_FAILURE() << key << " = " << value << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kConfig);
      for (const std::string word : {key, ", up to "})
        EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  }
}

TEST(ExperimentConfig, TaskIsWrittenAsAListForSeveralFamiliesAndAsANameForOne) {
  const auto config = read("[data]\ntask = ['files', 'builtin']\n[data.files]\ntrain = ['a.jsonl']\n");
  EXPECT_EQ(config.data.task, (config::Names{"files", "builtin"}));
  EXPECT_NE(config.text().find("task = [\"files\", \"builtin\"]"), std::string::npos);
  EXPECT_NE(read("").text().find("task = \"builtin\""), std::string::npos);
  const auto settled = settle(config, {});
  EXPECT_EQ(settled->evaluate.tasks.front(), "files");
  EXPECT_EQ(settled->evaluate.tasks.size(), 6u);
  expect_complaint("[data]\ntask = ['files', 'bultin']\n[data.files]\ntrain = ['a']\n", {"data.task", "bultin"});
  expect_complaint("[data]\ntask = []\n", {"data.task", "empty"});
  expect_complaint("[data]\ntask = ['builtin', 'builtin']\n", {"data.task", "builtin twice", "every value once"});
  expect_complaint("[data]\ntask = 3\n", {"data.task", "is 3", "a string or a list of strings"});
}

TEST(ExperimentConfig, UserFilesAreTasksUnderTheNamesOfTheirSets) {
  const auto config = settle(read(R"(
[data]
task = "files"
[data.files]
held_out = 0.2
[data.files.support]
train = ["a/*.jsonl"]
[data.files.exam]
test = ["exam.json"]
score = "choice"
options = ["yes", "no"]
)"),
                             {});
  EXPECT_EQ(config->evaluate.tasks, (std::vector<std::string>{"files:exam", "files:support"}));
  EXPECT_EQ(config.rows().files.by_task().at("files:support").held_out, 0.2);
  const auto text = config->text();
  EXPECT_NE(text.find("[data.files.exam]"), std::string::npos) << text;
  EXPECT_EQ(read(text).text(), text);
  expect_complaint("[data]\ntask = 'files'\n", {"data.files", "empty", "data.files.train"});
  expect_complaint("[evaluate]\ntasks = ['files:exam']\n", {"evaluate.tasks", "files:exam", "not known"});
  expect_complaint("[data.files]\nscore = 'rouge'\n", {"data.files.score", "rouge", "choice, f1, exact, nll"});
  expect_complaint("[data.files.x]\nstrict = true\n", {"data.files.x", "names no files"});
}

}  // namespace
}  // namespace evenkeel::fed
