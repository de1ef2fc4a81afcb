// Measures how the upload of one client is stored, by part: conversion to bytes, hashing, writing, flushing to disk,
// and the journal that does them together; and how the same tensors are stored as a snapshot of the server. Prints one
// line of JSON: for each number of threads the seconds and GB/s of the upload's bytes, and how many times as fast the
// last number is as the first.
//   upload_bench --layers 16 --folder /dev/shm/uploads       OLMoE-1B-7B's adapter of rank 20, 0.78 GB in float32
//   upload_bench --layers 4 --bfloat16 --threads 1 2
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <iostream>
#include <limits>

#include "base/format/fingerprint.h"
#include "base/plain/clock.h"
#include "base/plain/files.h"
#include "base/plain/json.h"
#include "base/plain/mapped_files.h"
#include "base/system/process.h"
#include "base/testing.h"
#include "fed/store/journal.h"

namespace evenkeel {
namespace {

using Clock = std::chrono::steady_clock;

struct Job {
  int64_t layers = 16, hidden = 2048, width = 1024, experts = 64, rank = 20, repeats = 3;
  std::vector<int> threads{1, 2};
  bool bfloat16 = false;
  std::string folder;
};

lora::LoraFactors stack(const Job& job, int64_t in, int64_t out) {
  return {at::full({job.experts, job.rank, in}, 0.25, at::kFloat),
          at::full({job.experts, out, job.rank}, 0.5, at::kFloat), at::Tensor(), 1.0};
}

lora::Payload payload_of(const Job& job) {
  lora::Payload payload;
  for (int64_t l = 0; l < job.layers; ++l) {
    const auto layer = concat("model.layers.", l, ".mlp.experts.");
    for (const auto* name : {"gate_proj", "up_proj"})
      payload.adapters[layer + name] = stack(job, job.hidden, job.width);
    payload.adapters[layer + "down_proj"] = stack(job, job.width, job.hidden);
  }
  return payload;
}

double seconds_of(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return seconds_since(begin);
}

/// Returns the least of several measurements, which other programs disturb least.
double least(const Job& job, const std::function<double()>& measurement) {
  double seconds = std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < job.repeats; ++i) seconds = std::min(seconds, measurement());
  return seconds;
}

std::string_view text_of(const at::Tensor& bytes_N) {
  return {static_cast<const char*>(bytes_N.const_data_ptr()), bytes_N.nbytes()};
}

void write_file(const fs::path& file, std::string_view bytes) {
  AtomicFile out(file);
  out.write(bytes);
  out.place();
}

/// Returns the seconds for which store() takes the caller. They include the writing unless it is in the background, as
/// on a GPU. \param background_bytes  largest upload that is written in the background
double store_seconds(const fs::path& folder, const lora::DeferredPayload& upload, int64_t background_bytes) {
  remove_path(folder);
  fed::RoundJournal journal(folder, 3600, {}, background_bytes);
  fed::ClientRecord record;
  record.id = 1;
  return seconds_of([&] { journal.store(record, upload, {}); });
}

OrderedJson seconds_with(const Job& job, int threads, double& gbyte) {
  at::set_num_threads(threads);
  const testing::TemporaryFolder temporary;
  const fs::path folder = job.folder.empty() ? temporary.path() : fs::path(job.folder);
  make_folders(folder);
  const auto dtype = job.bfloat16 ? lora::TransportDtype::kBFloat16 : lora::TransportDtype::kFloat32;
  const auto payload = payload_of(job);
  const lora::DeferredPayload upload(payload, dtype, {});
  const auto file = folder / "part.safetensors";
  const auto encoded = lora::encode(payload, dtype, {});
  const auto write = [&] { write_file(file, text_of(encoded.bytes)); };
  OrderedJson seconds;
  seconds["encode"] = least(job, [&] { return seconds_of([&] { lora::encode(payload, dtype, {}); }); });
  seconds["hash"] = least(job, [&] { return seconds_of([&] { fingerprint_of_bytes(text_of(encoded.bytes)); }); });
  seconds["write"] = least(job, [&] {
    remove_path(file);
    return seconds_of(write);
  });
  seconds["flush"] = least(job, [&] {
    write();
    return seconds_of([&] { flush_files(std::vector{file}); });
  });
  const auto tensors = decode_safetensors(encoded.bytes, "payload").tensors;
  seconds["snapshot"] = least(job, [&] {
    remove_path(file);
    return seconds_of([&] { save_safetensors(file, tensors); });
  });
  remove_path(file);
  const auto journal = folder / "journal";
  seconds["journal"] = least(job, [&] { return store_seconds(journal, upload, 0); });
  seconds["journal, in the background: caller"] =
      least(job, [&] { return store_seconds(journal, upload, std::numeric_limits<int64_t>::max()); });
  remove_path(journal);
  gbyte = 1e-9 * static_cast<double>(encoded.size());
  return seconds;
}

OrderedJson run(const Job& job) {
  OrderedJson result{{"gbyte", 0.0}}, all, rates, times_as_fast;
  double gbyte = 0;
  for (const int threads : job.threads) {
    const auto name = std::to_string(threads);
    all[name] = seconds_with(job, threads, gbyte);
    for (const auto& [part, value] : all[name].items()) rates[name][part] = gbyte / value.get<double>();
  }
  const auto &first = all[std::to_string(job.threads.front())], &last = all[std::to_string(job.threads.back())];
  for (const auto& [part, value] : first.items()) times_as_fast[part] = value.get<double>() / last[part].get<double>();
  result["gbyte"] = gbyte;
  result["seconds"] = all, result["gbyte_per_second"] = rates, result["times_as_fast"] = times_as_fast;
  return result;
}

}  // namespace
}  // namespace evenkeel

int main(int argc, char** argv) {
  evenkeel::settle_process(argv);
  CLI::App program("How the upload of one client is stored, by part");
  evenkeel::Job job;
  program.add_option("--layers", job.layers);
  program.add_option("--hidden", job.hidden);
  program.add_option("--width", job.width);
  program.add_option("--experts", job.experts);
  program.add_option("--rank", job.rank);
  program.add_option("--threads", job.threads, "numbers of threads, one after another")->capture_default_str();
  program.add_option("--repeats", job.repeats);
  program.add_option("--folder", job.folder, "default: a temporary one");
  program.add_flag("--bfloat16", job.bfloat16, "transport in 16 bits");
  program.allow_extras();
  CLI11_PARSE(program, argc, argv);
  if (!program.remaining().empty()) job.layers = 1, job.repeats = 1;  // --benchmark_min_time of `make bench-smoke`
  std::cout << evenkeel::run(job).dump() << std::endl;
  return 0;
}
