"""What a Session earned: rewards, group comparison and pass@k; pure, standard library only."""
