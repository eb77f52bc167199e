// `cistern completion`: what a shell completes, made from the command line's own description.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "shim/command/commands.hpp"

namespace cistern::command {
namespace {

std::string words_of(const CLI::App& app) {
  std::string words;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) words += " --" + name;
  return words;
}

std::string names_of(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command : app.get_subcommands({})) names += ' ' + command->get_name();
  return names;
}

// Behind a subcommand its flags, and files; `run` and `doctor` are followed by programs too.
std::string for_bash(const CLI::App& app) {
  std::string text = "_cistern() {\n  local word=${COMP_WORDS[COMP_CWORD]} words=\n";
  text += "  if [ \"$COMP_CWORD\" -eq 1 ]; then words='" + names_of(app) + " --help --version'\n  else\n";
  text += "    case ${COMP_WORDS[1]} in\n";
  for (const CLI::App* command : app.get_subcommands({}))
    text += "      " + command->get_name() + ") words='" + words_of(*command) + "' ;;\n";
  text +=
      "    esac\n  fi\n  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
      "  local IFS=$'\\n'\n"
      "  [ \"$COMP_CWORD\" -eq 1 ] || case ${COMP_WORDS[1]} in\n"
      "    run | doctor) COMPREPLY+=($(compgen -c -f -- \"$word\")) ;;\n"
      "    *) COMPREPLY+=($(compgen -f -- \"$word\")) ;;\n  esac\n}\ncomplete -o filenames -F _cistern cistern\n";
  return text;
}

std::string for_zsh(const CLI::App& app) {
  return "#compdef cistern\nautoload -U +X bashcompinit && bashcompinit\n" + for_bash(app);
}

std::string quoted(std::string text) {
  for (std::size_t at = 0; (at = text.find_first_of("\\'", at)) != text.npos; at += 2) text.insert(at, 1, '\\');
  return '\'' + text + '\'';
}

std::string for_fish(const CLI::App& app) {
  std::string text = "complete -c cistern -n __fish_use_subcommand -f\n";
  for (const CLI::App* command : app.get_subcommands({})) {
    text += "complete -c cistern -n __fish_use_subcommand -a " + command->get_name() + " -d " +
            quoted(command->get_description()) + "\n";
    for (const CLI::Option* option : command->get_options())
      for (const std::string& name : option->get_lnames())
        text += "complete -c cistern -n '__fish_seen_subcommand_from " + command->get_name() + "' -l " + name + " -d " +
                quoted(option->get_description()) + "\n";
  }
  return text;
}

}  // namespace

void add_completion(CLI::App& app, Outcome&) {
  CLI::App* const command = app.add_subcommand("completion", "print what a shell needs to complete this command");
  const auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->callback([&app, shell] {
    const std::string text = *shell == "fish" ? for_fish(app) : *shell == "zsh" ? for_zsh(app) : for_bash(app);
    std::fputs(text.c_str(), stdout);
  });
}

}  // namespace cistern::command
