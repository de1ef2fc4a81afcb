/// \file  Declares the sub-commands. Each function adds a command to the program with its flags, an example and a
/// callback. The callback does the work and throws evenkeel::Error; run_program() turns an error into one line and an
/// exit code.
#pragma once

#include <CLI/CLI.hpp>

namespace evenkeel::apps {

void add_demo_command(CLI::App& program);
void add_train_command(CLI::App& program);
void add_evaluate_command(CLI::App& program);
void add_score_command(CLI::App& program);
void add_bertscore_command(CLI::App& program);
void add_gradient_bias_command(CLI::App& program);  ///< bias of gradients with fewer experts per token
void add_pg_alignment_command(CLI::App& program);   ///< cosine of pseudo-gradients with true gradients
void add_generate_command(CLI::App& program);
void add_tokenize_command(CLI::App& program);
void add_pretrain_command(CLI::App& program);
void add_export_command(CLI::App& program);
void add_report_command(CLI::App& program);
void add_init_command(CLI::App& program);
void add_list_command(CLI::App& program);
void add_doctor_command(CLI::App& program);
void add_serve_command(CLI::App& program);
void add_node_command(CLI::App& program);
void add_keygen_command(CLI::App& program);
void add_privacy_command(CLI::App& program);
void add_status_command(CLI::App& program);
void add_study_command(CLI::App& program);
void add_completion_command(CLI::App& program);
void add_man_command(CLI::App& program);

}  // namespace evenkeel::apps
