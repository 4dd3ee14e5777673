"""The tables of actions: data only. A new entry of the palette or a shortcut is one row here and one handler in the window."""

from __future__ import annotations

from app.actions.registry import ActionRow

FILE = (
    ActionRow("open_model_file", "Open a GGUF file…", "File", "Ctrl+O"),
    ActionRow("add_model_folder", "Use a folder with models…", "File"),
    ActionRow("settings", "Settings", "File", "Ctrl+,"),
    ActionRow("quit", "Quit", "File", "Ctrl+Q"),
)
CHAT = (
    ActionRow("new_chat", "New chat", "Chat", "Ctrl+N"),
    ActionRow("stop", "Stop", "Chat", "Esc", "can_stop"),
    ActionRow("regenerate", "Regenerate the last answer", "Chat", "Ctrl+R", "answer_shown"),
    ActionRow("copy_answer", "Copy the last answer", "Chat", "Ctrl+Shift+C", "answer_shown"),
    ActionRow("fold_thinking", "Fold or unfold thinking", "Chat", "Alt+T", "answer_shown"),
    ActionRow("rename_chat", "Rename chat", "Chat", "F2", "chat_open"),
    ActionRow("delete_chat", "Delete chat", "Chat", "", "chat_open"),
    ActionRow("find", "Find in chat", "Chat", "Ctrl+F", "chat_open"),
    ActionRow("sampling", "Sampling of this chat", "Chat"),
    ActionRow("system_prompt", "System prompt of this chat", "Chat"),
)
MODEL = (
    ActionRow("pick_model", "Choose a model", "Model", "Ctrl+L"),
    ActionRow("reload_model", "Load the model again", "Model", "", "model_loaded"),
    ActionRow("unload_model", "Unload the model", "Model", "", "model_loaded"),
)
PLACEMENT = (
    ActionRow("apply_placement", "Apply the placement", "Placement", "Ctrl+Return", "placement_pending"),
    ActionRow("undo_placement", "Undo in the placement", "Placement", "Ctrl+Z", "placement_shown"),
    ActionRow("redo_placement", "Redo in the placement", "Placement", "Ctrl+Shift+Z", "placement_shown"),
    ActionRow("fit_placement", "Auto-fit the placement", "Placement", "", "placement_shown"),
    ActionRow("discard_placement", "Discard changes of the placement", "Placement", "", "placement_shown"),
    ActionRow("save_preset", "Save the placement as a preset…", "Placement", "", "placement_shown"),
    ActionRow("export_placement", "Export the placement…", "Placement", "", "placement_shown"),
    ActionRow("import_placement", "Open a placement file…", "Placement", "", "placement_shown"),
    ActionRow("choose_machine", "Plan for the machine of a file…", "Placement", "", "placement_shown"),
    ActionRow("plan_context", "Plan the context", "Placement", "", "placement_shown"),
    ActionRow("compare_placements", "Compare two placements", "Placement", "", "placement_shown"),
    ActionRow("check_placement", "Check what was loaded", "Placement", "", "placement_shown"),
    ActionRow("equivalent_command", "Show the equivalent command", "Placement", "", "placement_shown"),
)
MONITORS = (
    ActionRow("pause_monitors", "Pause the monitors, or let them go on", "Monitors", "", "monitors_shown"),
    ActionRow("record_monitors", "Record the monitors to a file, or stop", "Monitors", "", "monitors_shown"),
)
DOCTOR = (
    ActionRow("run_doctor", "Run the checks again", "Doctor", "F5", "doctor_shown"),
    ActionRow("run_all_checks", "Run all checks", "Doctor", "", "doctor_shown"),
    ActionRow("copy_doctor_report", "Copy the report of the doctor", "Doctor", "", "doctor_shown"),
    ActionRow("doctor_symptoms", "Find a cause by what you see", "Doctor", "", "doctor_shown"),
)
VIEW = (
    ActionRow("palette", "Commands and chats", "View", "Ctrl+K", in_palette=False),
    ActionRow("chat_page", "Chat", "View", "Ctrl+1"),
    ActionRow("placement_page", "Placement", "View", "Ctrl+2"),
    ActionRow("monitors_page", "Monitors", "View", "Ctrl+3"),
    ActionRow("doctor_page", "Doctor", "View", "Ctrl+5"),
    ActionRow("search_chats", "Search chats", "View", "Ctrl+Shift+F"),
    ActionRow("toggle_list", "Show or hide the list of chats", "View", "Ctrl+B"),
    ActionRow("toggle_side_panel", "Show or hide the side panel", "View", "Ctrl+Alt+B"),
    ActionRow("next_pane", "Next pane", "View", "F6", in_palette=False),
    ActionRow("previous_pane", "Previous pane", "View", "Shift+F6", in_palette=False),
)
HELP = (ActionRow("shortcuts", "Keyboard shortcuts", "Help", "F1"),)

ACTIONS = CHAT + MODEL + PLACEMENT + MONITORS + DOCTOR + VIEW + FILE + HELP
"""In the order of the palette."""
