/// \file  Reads the training rows of a run, which are either divided among its clients or owned by each client.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/example.h"
#include "data/row_files.h"
#include "fed/config/run_config.h"
#include "tokenizer/tokenizer.h"

namespace evenkeel::fed {

/// A row of a file.
struct FileRow {
  std::optional<size_t> file{};  ///< index into Shards::files; nullopt for a generated row
  int64_t row = 0;               ///< data::RowPlace::row
  bool operator==(const FileRow&) const = default;
};

/// The tokenized training rows by client.
struct Shards {
  std::vector<std::vector<data::Example>> examples;  ///< [client][row]
  std::vector<std::vector<FileRow>> rows;            ///< [client][row], where the row was read
  std::vector<std::vector<int64_t>> indices{};       ///< [client][row], index into training_set()
  std::vector<FileRow> held_out{};                   ///< rows of the same files that are held out for testing
  std::vector<std::string> files;                    ///< files that were read; empty for generated rows
  std::vector<std::vector<std::string>> files_of;    ///< [client], if clients have their own rows; else empty
  int64_t cut = 0;                                   ///< number of rows longer than data.cutoff
  int64_t without_target = 0;  ///< number of rows dropped because no token of an answer is within the cutoff
  int64_t left_out = 0;        ///< number of rows left out because they cannot be read or tokenised
};

/// Replaces the clients' files by a placeholder if the clients bring their own rows, which are at their nodes.
/// Otherwise returns `config` unchanged.
ExperimentConfig without_rows(ExperimentConfig config);

/// Reads the rows that a client trains on, or all rows of `[data]` if clients have no rows of their own.
/// Shards::indices are indices into the result. \param client  in [0, clients.count) \throws as make_shards()
data::TaskRows training_set(const RunConfig& config, int64_t client);

/// Checks that nodes can have the rows of a run: those that it divides are generated, or in folders of the nodes.
/// \throws kConfig for files that the config names, which no node reads
void check_rows_of_nodes(const ExperimentConfig& config);

/// Checks that no file of training rows is there twice, also as a copy, because the epsilon of a row covers its use in
/// one place.
/// \param where  the setting or flag that protects single rows, for the message: "with --flag"
/// \throws kData for such a file; kIo for one that cannot be read
void check_rows_train_once(const Shards& shards, std::string_view where);

/// Reads and tokenizes the training rows and divides them among the clients.
/// \throws kConfig, kData for files that are missing or rows that cannot be read or divided. Errors in a client's own
/// rows name the client, the file and the line
Shards make_shards(const RunConfig& config, const tokenizer::Tokenizer& tokenizer, const models::ModelSpec& model);

}  // namespace evenkeel::fed
