// Measures the server's aggregation step for each method, from upload files as a run's journal stores them. Each
// measurement runs in its own process and prints one line of JSON: seconds; GB/s of the uploads' bytes (each counted
// once) and their fraction of the memory bandwidth measured in the same run; additional memory; and a SHA-256 of the
// resulting state, to compare builds.
//   aggregation_bench --full --clients 8 32 --folder uploads > server.json      OLMoE-1B-7B's layout, 370 MiB a client
//   aggregation_bench --layers 2 --hidden 2048 --width 1024 --experts 64 --rank 20 --clients 2 4 8 --methods flexlora
//   aggregation_bench --full --float32 --clients 8 --methods fedit --rounds 8    uploads without rounding
// Files are written once and kept with --folder; without it they go to a temporary folder that is removed. Memory is
// sampled every 2 ms: RssAnon of /proc/self/status and, separately, RssFile, the pages of mapped files, which the
// system can drop. The page cache is not cleared; the number of major faults shows how often a page was read from the
// disk.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cmath>
#include <fstream>
#include <iostream>
#include <thread>

#include "base/plain/clock.h"
#include "base/plain/files.h"
#include "base/plain/json.h"
#include "base/plain/mapped_files.h"
#include "base/random/random.h"
#include "base/system/dispatch.h"
#include "base/system/process.h"
#include "base/testing.h"
#include "bench/machine_limits.h"
#include "fed/run/make_experiment.h"

namespace evenkeel {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct Layout {
  int64_t layers = 1, hidden = 96, width = 64, experts = 8, rank = 4;
  lora::TransportDtype transport = lora::TransportDtype::kBFloat16;

  std::string config() const {
    return concat(
        R"({"model_type": "olmoe", "architectures": ["OlmoeForCausalLM"], "vocab_size": 512, "hidden_size": )", hidden,
        R"(, "intermediate_size": )", width, R"(, "num_hidden_layers": )", layers,
        R"(, "num_attention_heads": 16, "num_key_value_heads": 16, "num_experts": )", experts,
        R"(, "num_experts_per_tok": 8, "norm_topk_prob": false, "hidden_act": "silu", "rms_norm_eps": 1e-5,
  "rope_theta": 10000.0, "max_position_embeddings": 4096, "tie_word_embeddings": false, "attention_bias": false,
  "clip_qkv": null, "initializer_range": 0.02, "eos_token_id": 0, "pad_token_id": 1})");
  }
  /// Returns the folder name of the files. Each layout has its own folder.
  std::string name() const {
    return concat(layers, "x", hidden, "x", width, "x", experts, "r", rank,
                  transport == lora::TransportDtype::kBFloat16 ? "" : "-float32");
  }
};

// --- memory and time ---

struct Resident {
  int64_t anonymous = 0, of_files = 0;  // bytes
};

Resident resident() {
  Resident now;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) now.anonymous = std::stoll(line.substr(8)) * 1024;
    if (line.starts_with("RssFile:")) now.of_files = std::stoll(line.substr(8)) * 1024;
  }
  return now;
}

/// Samples the peak of each kind of memory during its lifetime. The two peaks may be at different times.
class PeakMemory {
 public:
  Resident most() const { return {anonymous_, of_files_}; }

 private:
  std::atomic<int64_t> anonymous_{resident().anonymous}, of_files_{resident().of_files};
  std::jthread sampler_{[this](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const auto now = resident();
      anonymous_ = std::max(anonymous_.load(), now.anonymous);
      of_files_ = std::max(of_files_.load(), now.of_files);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }};
};

int64_t major_faults() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_majflt;
}

// --- uploads ---

fed::Server make_server(const fs::path& folder, const Layout& layout, const std::string& method, int64_t clients) {
  std::string budgets = "1.0";
  for (int64_t c = 1; c < clients; ++c) budgets += ", 1.0";
  auto table = config::Table::parse(
      concat("name = \"bench\"\nseed = 3\n[model]\ncompute_dtype = \"float32\"\npath = \"", folder.string(),
             "\"\n[lora]\nrouter_lora = false\nrank = ", layout.rank, "\nalpha = ", layout.rank,
             "\n[method]\nname = \"", method, "\"\n[train]\ntransport_dtype = \"", config::name_of(layout.transport),
             "\"\n[clients]\ncount = ", clients, "\nbudgets = [", budgets, "]\n"),
      "bench");
  const auto config = fed::settle(fed::ExperimentConfig::read(table), {});
  const auto shape = models::load_shape(folder);
  auto server = evenkeel::fed::make_server(config, *shape);
  server.clients = fed::make_clients(config, server.model, std::vector<size_t>(static_cast<size_t>(clients), 100));
  return server;
}

/// Draws from N(0, scale) in bfloat16. Each matrix of a stack has its own scale, like experts of unequal load.
at::Tensor draw(at::IntArrayRef sizes, RandomStream stream) {
  static const std::vector<float> normals = [] {
    std::vector<float> table(size_t{1} << 16);
    RandomStream(1, "normals").fill_normal(table, 0.02);
    return table;
  }();
  const auto values = at::empty(sizes, at::kBFloat16);
  const int64_t matrix = sizes[sizes.size() - 1] * sizes[sizes.size() - 2], count = values.numel() / matrix;
  auto* out = values.mutable_data_ptr<c10::BFloat16>();
  for (int64_t e = 0; e < count; ++e) {
    const auto scale = static_cast<float>(std::exp(0.5 * normals[stream.next_u64() >> 48] / 0.02));
    for (int64_t i = 0; i < matrix; i += 4) {
      const uint64_t four = stream.next_u64();
      for (int64_t j = 0; j < std::min<int64_t>(4, matrix - i); ++j)
        out[e * matrix + i + j] = normals[(four >> (16 * j)) & 0xffff] * scale;
    }
  }
  return values;
}

/// Returns everything that a client of any method sends.
lora::Payload whole_upload(const fed::Server& server, const Layout& layout, int64_t client) {
  lora::Payload upload;
  const auto key = static_cast<uint64_t>(client);
  for (const auto& [name, site] : server.sites)
    upload.adapters[name] = {
        .a = draw(lora::shape_of(site, lora::kFactorA, layout.rank), {7, name + "/a", key}),
        .b = draw(lora::shape_of(site, lora::kFactorB, layout.rank), {7, name + "/b", key}),
        .core = draw(lora::shape_of(site, lora::kFactorCore, layout.rank), {7, name + "/core", key})};
  RandomStream stream(7, "counts", key);
  for (const auto& layer : server.model.moe_layers) {
    auto counts_E = at::empty({layout.experts}, at::kInt);
    for (int64_t e = 0; e < layout.experts; ++e) counts_E[e] = static_cast<int64_t>(stream.next_u64() % 1000);
    upload.extras[layer + ".counts"] = counts_E;
    upload.extras[layer + ".tokens"] = at::full({1}, counts_E.sum().item<int64_t>() / 8, at::kInt);
    upload.extras[layer + ".share"] = counts_E.to(at::kFloat) / 1000;
  }
  upload.extras["rank"] = at::scalar_tensor(layout.rank, at::kInt);
  return upload;
}

fs::path upload_file(const fs::path& folder, int64_t client) { return folder / concat(client, ".upload.safetensors"); }

void write_uploads(const fs::path& folder, const Layout& layout, int64_t clients) {
  const auto server = make_server(folder, layout, "fedit", 1);
  for (int64_t c = 0; c < clients; ++c) {
    if (fs::exists(upload_file(folder, c))) continue;
    const auto bytes = lora::encode(whole_upload(server, layout, c), layout.transport, server.sites).bytes;
    const auto part = upload_file(folder, c).string() + ".part";
    std::ofstream(part, std::ios::binary)
        .write(static_cast<const char*>(bytes.const_data_ptr()), static_cast<std::streamsize>(bytes.nbytes()));
    fs::rename(part, upload_file(folder, c));
  }
}

bool sends_extra(const std::string& method, const std::string& name) {
  if (method == "hetlora") return name == "rank";
  if (method == "slimmable-moe") return name.ends_with(".share");
  return (method == "ub-smoe" || method == "a3smoe") && name != "rank" && !name.ends_with(".share");
}

/// Removes everything from the upload that clients of the method do not send.
void keep_what_is_sent(lora::Payload& upload, const std::string& method) {
  for (auto& [site, factors] : upload.adapters) {
    if (method == "fed-sb" || method == "ffa-lora") factors.a = at::Tensor();
    if (method == "fed-sb") factors.b = at::Tensor();
    if (method != "fed-sb") factors.core = at::Tensor();
  }
  std::erase_if(upload.extras, [&](const auto& extra) { return !sends_extra(method, extra.first); });
}

std::vector<methods::ClientUpdate> read_uploads(const fs::path& folder, const fed::Server& server) {
  std::vector<methods::ClientUpdate> updates;
  for (const auto& client : server.clients) {
    updates.push_back({client, lora::load_payload(upload_file(folder, client.id)), 10});
    keep_what_is_sent(updates.back().payload, server.config->method.name);
  }
  return updates;
}

// --- what is measured ---

template <typename See>
void see_tensors(const lora::AdapterState& adapters, const See& see) {
  for (const auto& [site, f] : adapters)
    for (const auto* tensor : {&f.a, &f.b, &f.core})
      if (tensor->defined()) see(*tensor);
}

template <typename See>
void see_tensors(const methods::ServerState& state, const See& see) {
  for (const auto* part :
       {&state.global.adapters, &state.global.base_delta, &state.common.fixed, &state.common.base_change})
    see_tensors(*part, see);
  for (const auto* part : {&state.global.extras, &state.memory})
    for (const auto& [name, tensor] : *part) see(tensor);
}

int64_t bytes_of(const lora::AdapterState& adapters) {
  int64_t bytes = 0;
  see_tensors(adapters, [&](const at::Tensor& t) { bytes += static_cast<int64_t>(t.nbytes()); });
  return bytes;
}

/// Returns the bytes of a state. Memory that two tensors share counts once.
int64_t bytes_of(const methods::ServerState& state) {
  std::map<const void*, int64_t> storages;
  see_tensors(state,
              [&](const at::Tensor& t) { storages[t.storage().data()] = static_cast<int64_t>(t.storage().nbytes()); });
  int64_t bytes = 0;
  for (const auto& [address, size] : storages) bytes += size;
  return bytes;
}

int64_t largest_site(const lora::AdapterState& adapters) {
  int64_t most = 0;
  for (const auto& site : adapters) most = std::max(most, bytes_of(lora::AdapterState{site}));
  return most;
}

std::string hash_of(const methods::ServerState& state) {
  std::string hashes;
  see_tensors(state, [&](const at::Tensor& tensor) {
    const auto plain = tensor.contiguous();
    hashes += sha256({static_cast<const char*>(plain.const_data_ptr()), plain.nbytes()});
  });
  return sha256(hashes).substr(0, 16);
}

methods::ServerState beginning(const fed::Server& server) {
  if (server.config->method.name != "fed-sb") return server.method->initialize(server.view(0));
  methods::ServerState state;  // initialisation is not measured here
  for (const auto& [name, site] : server.sites) {
    const auto zeros = [&](auto factor) { return at::zeros(lora::shape_of(site, factor, server.max_rank())); };
    state.global.adapters[name] = {.core = zeros(lora::kFactorCore)};
    state.common.fixed[name] = {.a = zeros(lora::kFactorA), .b = zeros(lora::kFactorB)};
  }
  return state;
}

struct Options {
  Layout layout{};
  fs::path folder{};
  std::vector<int64_t> clients{3};
  std::vector<std::string> methods{};
  int64_t rounds = 1;
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  bool hash = true;
};

OrderedJson described(const Options& options, const std::string& method, int64_t clients, int64_t round) {
  const auto& [layers, hidden, width, experts, rank, transport] = options.layout;
  return {{"method", method},
          {"clients", clients},
          {"rank", rank},
          {"layers", layers},
          {"experts", experts},
          {"hidden", hidden},
          {"width", width},
          {"round", round + 1},
          {"threads", options.threads},
          {"transport", config::name_of(transport)}};
}

void measure(const Options& options, const std::string& method, int64_t clients) {
  const auto server = make_server(options.folder, options.layout, method, clients);
  const auto updates = read_uploads(options.folder, server);
  int64_t sent = 0, site = 0;
  for (const auto& update : updates) {
    sent += bytes_of(update.payload.adapters);
    site += largest_site(update.payload.adapters);
  }
  const double stream = 1e9 * bench::measure_limits(at::get_num_threads()).gbytes;
  auto state = beginning(server);
  const methods::RoundView round{
      .round = 0,
      .participants = server.clients,
      .weights = std::vector<double>(server.clients.size(), 1.0 / static_cast<double>(clients))};
  for (int64_t t = 0; t < options.rounds; ++t) {
    if (t == 0) ::malloc_trim(0);  // later rounds reuse the memory of earlier ones, as in a server
    release_mapped_pages();
    const int64_t faults = major_faults(), old_state = bytes_of(state);
    const auto before = resident();
    const PeakMemory peak;
    const auto begin = Clock::now();
    auto next = server.aggregate(state, round, updates);
    const double seconds = seconds_since(begin), rate = static_cast<double>(sent) / seconds;
    auto line = described(options, method, clients, t);
    line.update({{"seconds", seconds},
                 {"upload_bytes", sent},
                 {"gb_per_s", rate / 1e9},
                 {"stream_gb_per_s", stream / 1e9},
                 {"share_of_stream", rate / stream},
                 {"state_before_bytes", old_state},
                 {"state_after_bytes", bytes_of(next)},
                 {"site_of_all_clients_bytes", site},
                 {"peak_beside_bytes", peak.most().anonymous - before.anonymous},
                 {"peak_mapped_bytes", peak.most().of_files - before.of_files},
                 {"major_faults", major_faults() - faults}});
    if (options.hash) line["sha256"] = hash_of(next);
    std::cout << line.dump() << std::endl;
    state = std::move(next);
  }
}

/// Runs work() in its own process, so that memory and caches of one measurement do not affect the next.
template <typename Work>
void apart(int threads, const Work& work) {
  std::cout.flush();
  const pid_t process = ::fork();
  if (process == 0) {
    int status = 0;
    try {
      at::set_num_threads(threads);
      work();
    } catch (const std::exception& error) {
      std::cerr << error.what() << std::endl;
      status = 1;
    }
    ::_exit(status);
  }
  int status = 0;
  ::waitpid(process, &status, 0);
  if (WIFSIGNALED(status))
    std::cerr << "aggregation_bench: ended by signal " << WTERMSIG(status) << "; 9 comes where memory runs out\n";
  if (status != 0) std::exit(1);
}

void run(Options options) {
  std::optional<testing::TemporaryFolder> temporary;
  if (options.folder.empty()) options.folder = temporary.emplace().path();
  options.folder /= options.layout.name();
  fs::create_directories(options.folder);
  std::ofstream(options.folder / "config.json") << options.layout.config();
  const int64_t most = *std::max_element(options.clients.begin(), options.clients.end());
  apart(1, [&] { write_uploads(options.folder, options.layout, most); });
  for (const int64_t clients : options.clients)
    for (const auto& method : options.methods) apart(options.threads, [&] { measure(options, method, clients); });
}

std::vector<std::string> all_methods() {
  std::vector<std::string> names;
  for (const auto& entry : methods::methods()) names.emplace_back(entry.name);
  return names;
}

}  // namespace
}  // namespace evenkeel

int main(int argc, char** argv) {
  evenkeel::settle_process(argv);
  evenkeel::Options options{.methods = evenkeel::all_methods()};
  CLI::App app("the server's step of a round");
  app.allow_extras();  // flags of other benchmarks
  app.add_flag_callback(
      "--full", [&] { options.layout = {16, 2048, 1024, 64, 20, options.layout.transport}; }, "OLMoE-1B-7B at rank 20");
  app.add_flag_callback(
      "--float32", [&] { options.layout.transport = evenkeel::lora::TransportDtype::kFloat32; }, "uploads in float32");
  app.add_option("--layers", options.layout.layers);
  app.add_option("--hidden", options.layout.hidden);
  app.add_option("--width", options.layout.width);
  app.add_option("--experts", options.layout.experts);
  app.add_option("--rank", options.layout.rank);
  app.add_option("--clients", options.clients);
  app.add_option("--methods", options.methods);
  app.add_option("--rounds", options.rounds, "one after the other, on the same uploads");
  app.add_option("--threads", options.threads);
  app.add_option("--folder", options.folder, "where uploads are kept");
  app.add_flag("!--no-hash", options.hash);
  CLI11_PARSE(app, argc, argv);
  try {
    evenkeel::run(std::move(options));
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
