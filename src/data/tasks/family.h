/// \file  What a family of tasks brings to the table in tasks.cpp. Private to the tasks folder.
#pragma once

#include "data/tasks.h"

namespace evenkeel {

/// The eight sets of LLM-Adapters (Hu et al. 2023), read from files.
std::span<const TaskInfo> commonsense_tasks();
TaskRows commonsense_test_rows(const TaskInfo& task, const std::filesystem::path& data_path);
TaskRows commonsense_training_rows(const std::filesystem::path& data_path);

/// TeleQuAD v4, read from its file.
std::span<const TaskInfo> telequad_tasks();
std::span<const std::string_view> telequad_label_keys();
TaskRows telequad_test_rows(const RowOptions& options);
TaskRows telequad_training_rows(const RowOptions& options);

/// Ours, generated. Test rows ask every question that is kept for testing, once, in an order drawn by the seed.
std::span<const TaskInfo> builtin_tasks();
std::vector<Row> builtin_test_rows(const TaskInfo& task, uint64_t seed);
std::vector<Row> builtin_training_rows(int64_t count, uint64_t seed);

}  // namespace evenkeel
