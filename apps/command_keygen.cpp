// `evenkeel keygen`: creates the key that identifies a node.
#include <iostream>

#include "apps/commands.h"
#include "apps/output_paths.h"
#include "base/plain/files.h"
#include "base/plain/text.h"
#include "flower/format/keys.h"

namespace evenkeel::apps {
namespace {

struct KeygenFlags {
  std::string file, comment;
};

void run_keygen(const KeygenFlags& flags) {
  check_path_text(flags.file, "FILE");
  check_not_kept("FILE", flags.file);
  const auto comment = flags.comment.empty() ? fs::path(flags.file).stem().string() : flags.comment;
  flower::check_key_name(comment);
  const auto line = flower::openssh_line(flower::make_key(flags.file).public_key(), comment);
  std::cout << line << "\n" << std::flush;
  std::cerr << "the private key is in " << flags.file
            << ", for `evenkeel node --key`; the line above is what a server's "
            << "--allow file, or `flwr supernode register`, wants\n";
}

}  // namespace

void add_keygen_command(CLI::App& program) {
  auto flags = std::make_shared<KeygenFlags>();
  auto* command = program.add_subcommand("keygen", "a key for a node of a federation");
  command->footer(
      "Example: evenkeel keygen hospital.pem --comment hospital >> keys.txt\n\n"
      "Writes a new private key (P-384, PKCS#8, readable by its owner alone) and prints the public one as a line of "
      "OpenSSH's form.");
  command->add_option("FILE", flags->file, "of the private key, which must not exist yet")->required();
  command->add_option("--comment", flags->comment, "name of the node in allow-lists (default: the file's name)");
  command->callback([flags] { run_keygen(*flags); });
}

}  // namespace evenkeel::apps
